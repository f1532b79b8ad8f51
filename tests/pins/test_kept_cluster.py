"""One local Ray cluster for all stages of a flow, as long as it can be used."""

import os
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest

from elastic_core.system.ray_cluster import kept_cluster, running_cluster
from elastic_core.system.retry import wait_until


def test_stages_share_a_cluster_until_an_error_and_none_is_left() -> None:
    # What Ray is told through the environment is not for the tests after this one.
    with patch.dict(os.environ), kept_cluster():
        with running_cluster(None, 1, 1) as first:
            assert first.client().list_jobs() == []
        with running_cluster(None, 1, 1) as second:
            assert second == first and not first.has_ended()
        with pytest.raises(ValueError, match="lost"), running_cluster(None, 1, 1):
            raise ValueError("lost")
        assert first.has_ended()
        with running_cluster(None, 1, 2) as third:
            assert third.head != first.head and third.nodes() == [(2, 64)]
            third.client().submit_job(entrypoint="sleep 1234")
            assert third.head is not None
            head = psutil.Process(third.head)
            assert wait_until(lambda: any("sleep" in each.name() for each in head.children(recursive=True)), 600)
            family, own = head.children(recursive=True), Path(head.cmdline()[-1].partition("=")[2]).parent
            assert own.is_dir()
    assert third.has_ended()
    # A job's driver leads a session of its own.
    assert not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert not own.exists()
