-- Schema 7: the audit of users, a row for each conversation.

CREATE TABLE user_features (           -- The user's style and errors in each audited conversation, append-only; the view user_features has the newest audit.
    traj_id                BIGINT,     -- the trajectory
    run_id                 VARCHAR,    -- the run
    incarnation            INTEGER,    -- the start of the run that wrote this
    writer                 INTEGER,    -- the process that wrote this
    seq                    BIGINT,     -- order within the writer
    logged_at              DOUBLE,     -- Unix seconds (UTC)
    utterances             INTEGER,    -- utterances of the user that the next 19 numbers are about; 0 if it said nothing, and they are null
    words_per_turn         DOUBLE,     -- words of an utterance, averaged
    short_utterance_rate   DOUBLE,     -- share of utterances of at most three words
    politeness             DOUBLE,     -- share of utterances with a word of politeness
    formality              DOUBLE,     -- share of utterances with a formal word
    acknowledgment         DOUBLE,     -- share of utterances that begin with an acknowledgment
    verbosity_cv           DOUBLE,     -- standard deviation of the words of an utterance, divided by their mean
    repetition             DOUBLE,     -- share of utterances with four words in a row that were said before
    identity_confusion     DOUBLE,     -- share of utterances in which the user talks like an assistant
    front_loading          DOUBLE,     -- identifiers in the first utterance, as a share of all
    identifiers_per_turn   DOUBLE,     -- identifiers of an utterance, averaged
    opening_length         DOUBLE,     -- words of the first utterance
    uncertainty            DOUBLE,     -- share of utterances with a word of doubt
    certainty              DOUBLE,     -- share of utterances with a word of certainty
    pushback               DOUBLE,     -- share of utterances that contradict the agent
    clarification_question DOUBLE,     -- share of utterances that ask what the agent means
    info_seeking           DOUBLE,     -- share of utterances with a question mark
    emotional_expression   DOUBLE,     -- share of utterances with a word of emotion or an exclamation mark
    accusatory             DOUBLE,     -- share of utterances with an accusation
    strategy_pivot         DOUBLE,     -- share of utterances that change the plan
    typical                VARCHAR,    -- an utterance of middling length, in three conversations of an audit; null in the others
    identifiers            INTEGER,    -- different identifiers of each utterance, summed
    stopped                BOOLEAN,    -- true if the user ended the conversation
    facts                  INTEGER,    -- facts that the user holds; null, as the next four, where the gym does not know the truth
    told                   INTEGER,    -- facts that the user said
    asked_again            INTEGER,    -- times that the agent asked for a fact again after it was told
    parts                  INTEGER,    -- parts of the goal
    settled                INTEGER,    -- parts of the goal that the agent settled
    user_errors            VARCHAR,    -- JSON: errors of the user by kind; a kind that the gym's truth cannot show is absent
    agent_errors           VARCHAR,    -- JSON: errors of the agent; null where the gym does not know the truth
    user_error             BOOLEAN,    -- true if the user made an error of a certain kind that can explain a failure; null where the gym does not know the truth
    verdict                VARCHAR,    -- whose error a failed conversation shows: user, agent, both, neither seen; null if it was solved or the gym does not know the truth
    suspect                VARCHAR,    -- JSON: why the task is suspect; [] if it is not
    rules_checked          BOOLEAN     -- true if the gold writes were compared with the rules of the policy
);
