-- Schema 4: what users and judges were asked, and tokens that a server did not state.

ALTER TABLE model_calls ADD COLUMN estimated BOOLEAN; -- whether tokens were reckoned from the texts, since the server's could not be true
ALTER TABLE model_calls ADD COLUMN prompt VARCHAR; -- messages sent to a user or judge, as JSON; null for policies and in training
ALTER TABLE model_calls ADD COLUMN reply VARCHAR; -- what a user or judge answered, as it came; null for policies and in training
