"""What a training process does with a job: one module per kind, imported only in that process."""
