-- Schema 8: the protocol of every evaluation, a row for each policy and gym.

CREATE TABLE protocols (               -- What an evaluation was played with, append-only; the view protocols has the newest row of each policy and gym.
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    policy             VARCHAR,        -- the acting policy
    checkpoint         VARCHAR,        -- the acting checkpoint, if any
    gym                VARCHAR,        -- the gym
    tasks              VARCHAR,        -- source, split and number of the tasks, and a hash of their ids
    task_versions      VARCHAR,        -- hash of the tasks' contents, without folders of this machine and prompts
    user_model         VARCHAR,        -- the user: none, rule, human, or a model's name
    user_prompts       VARCHAR,        -- whose prompts the user has (none, ours, released), and a hash of their texts
    user_behaviour     VARCHAR,        -- JSON: strategy, population and other options of the user
    user_sampling      VARCHAR,        -- JSON: temperature, top_p and token limit of the user
    judge              VARCHAR,        -- who judges messages in the gym: none, rule, or a model's name
    gym_settings       VARCHAR,        -- JSON: every field of the gym's config
    horizon            VARCHAR,        -- maximum agent turns
    agent_prompt       VARCHAR,        -- prompt style of the agent, and a hash of its texts
    agent_tool         VARCHAR,        -- the agent's tool: interact or native, tool_choice, and a hash of its description
    temperature        VARCHAR,        -- sampling temperature of the agent; scripted if it is no model
    top_p              VARCHAR,        -- its nucleus; greedy where the temperature is 0
    max_tokens         VARCHAR,        -- its most tokens of a reply
    context_limit      VARCHAR,        -- its most tokens of a conversation; server's where the server decides
    format_errors      VARCHAR,        -- what a reply without a readable call does: end or continue
    attempts           VARCHAR,        -- conversations per task
    protocol_hash      VARCHAR,        -- hash of all settings above
    texts              VARCHAR         -- JSON: the hash of each text of agent and user, by role and name
);
