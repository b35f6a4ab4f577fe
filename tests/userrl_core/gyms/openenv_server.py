"""An OpenEnv server for tests, run by the Python that has openenv-core: reach a number with typed steps.

python openenv_server.py PORT
"""

import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from pydantic import Field


class Move(Action):
    by: int = Field(ge=-9, le=9, description="how far")
    way: str = Field(default="walk", description="how")


class Place(Observation):
    value: int
    target: int


class Line(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, far=0, **more):
        self.value, self.target, self.steps = 0, (seed or 0) % 7 + 1 + far, 0
        return Place(value=0, target=self.target)

    def step(self, action, timeout_s=None, **more):
        self.value, self.steps = self.value + action.by, self.steps + 1
        there = self.value == self.target
        reward = 1.0 if there else 0.0 if self.steps == 4 else 0.1 if action.way == "run" else None
        return Place(value=self.value, target=self.target, done=there or self.steps == 4, reward=reward)

    @property
    def state(self):
        return State(step_count=self.steps)


uvicorn.run(create_fastapi_app(Line, Move, Place, max_concurrent_envs=64), port=int(sys.argv[1]), log_level="warning")
