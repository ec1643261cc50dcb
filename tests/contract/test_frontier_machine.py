"""Random calls to a job, compared step by step with a simple model."""

import pytest
from frontier_machine import FrontierMachine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from skitter.frontier.embedded import backlog, scheduler


@pytest.mark.timeout(900)  # takes a minute of CPU time on a cluster
def test_frontier_and_model_agree_after_any_calls(backend, job_kind, monkeypatch):
    """With two requests of each slot in memory, so that requests also move between memory and file."""
    monkeypatch.setattr(backlog, "MIN_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog, "MAX_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog, "MAX_LONG_HEAD_SIZE", 2)
    monkeypatch.setattr(scheduler, "LOW_HEAD", 1)
    run_state_machine_as_test(
        type("Machine", (FrontierMachine,), {"backend_kind": type(backend), "job_kind": job_kind}),
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
