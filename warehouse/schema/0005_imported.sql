-- Schema 5: runs imported from other tools.

ALTER TABLE runs ADD COLUMN kind VARCHAR; -- imported: conversations of another tool; null: a run that was trained, evaluated or played here
