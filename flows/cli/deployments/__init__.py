"""Commands on deployments: register, start, schedules."""
