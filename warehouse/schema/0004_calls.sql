-- Schema 4: the prompts and replies of users and judges, and estimated token counts.

ALTER TABLE model_calls ADD COLUMN estimated BOOLEAN; -- true if tokens were estimated from the texts, because the server's count was missing or impossible
ALTER TABLE model_calls ADD COLUMN prompt VARCHAR; -- messages sent to a user or judge, as JSON; null for policies and in training
ALTER TABLE model_calls ADD COLUMN reply VARCHAR; -- reply of a user or judge, unchanged; null for policies and in training
