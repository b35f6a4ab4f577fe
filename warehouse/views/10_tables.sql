-- The readers' views over the stored rows (schema `store`): superseded rows hidden, credits joined, latest states. A rewind
-- with a step voids train, baseline and validate rows after that step: of its own stage with scope "stage", else of all stages.
-- A rewind with only a stage voids the stage. All affect only rows of earlier incarnations of the run. store.rewound and
-- store.restarted hold them.

CREATE OR REPLACE VIEW runs AS SELECT * FROM store.runs;
CREATE OR REPLACE VIEW trials AS SELECT * FROM store.trials;
CREATE OR REPLACE VIEW events AS SELECT * FROM store.events;
CREATE OR REPLACE VIEW checkpoints AS
    SELECT * FROM store.checkpoints
    QUALIFY row_number() OVER (PARTITION BY run_id, checkpoint ORDER BY incarnation, writer, seq) = 1;
CREATE OR REPLACE VIEW stages AS SELECT * FROM store.stages;
CREATE OR REPLACE VIEW stage_status AS
    SELECT * FROM store.stages
    QUALIFY row_number() OVER (PARTITION BY run_id, stage ORDER BY incarnation DESC, seq DESC) = 1;
CREATE OR REPLACE VIEW tasks AS
    SELECT * FROM store.tasks
    QUALIFY row_number() OVER (PARTITION BY run_id, gym, task_id, version ORDER BY writer, seq) = 1;

CREATE OR REPLACE VIEW turns_all AS SELECT * FROM store.credited_turns;
CREATE OR REPLACE VIEW trajectories_all AS SELECT * FROM store.trajectories;
CREATE OR REPLACE VIEW model_calls_all AS SELECT * FROM store.model_calls;
CREATE OR REPLACE VIEW metrics_all AS SELECT * FROM store.metrics;
CREATE OR REPLACE VIEW judgements_all AS SELECT * FROM store.judgements;
CREATE OR REPLACE VIEW labels_all AS SELECT * FROM store.labels;
CREATE OR REPLACE VIEW labels AS
    SELECT * FROM store.labels
    QUALIFY row_number() OVER (PARTITION BY traj_id, turn, name, source, labeller ORDER BY logged_at DESC, incarnation DESC, writer DESC, seq DESC) = 1;
CREATE OR REPLACE VIEW protocols AS
    SELECT * FROM store.protocols
    QUALIFY row_number() OVER (PARTITION BY run_id, policy, checkpoint, gym ORDER BY incarnation DESC, logged_at DESC, writer DESC, seq DESC) = 1;
CREATE OR REPLACE VIEW user_features_all AS SELECT * FROM store.user_features;
CREATE OR REPLACE VIEW user_features AS
    SELECT * FROM store.user_features
    QUALIFY row_number() OVER (PARTITION BY traj_id ORDER BY logged_at DESC, incarnation DESC, writer DESC, seq DESC) = 1;
CREATE OR REPLACE VIEW credits_all AS
    SELECT traj_id, turn, run_id, incarnation, writer, seq, shaped, advantage FROM store.credits
    UNION ALL
    SELECT traj_id, turn, run_id, incarnation, writer, seq, shaped, advantage FROM store.turns
    WHERE advantage IS NOT NULL;
