"""How verl attaches to the MLflow run of a training that goes on."""

import os
from pathlib import Path

import mlflow

from tests.processes import python

ATTACH = """
import sys
from verl.utils.tracking import Tracking
attached = Tracking("project", "run", ["mlflow"], {"trainer": {"nnodes": int(sys.argv[1])}})
assert "mlflow" in attached.logger
attached.finish()
"""


def test_verls_configuration_is_an_artifact_that_may_change(tmp_path: Path) -> None:
    """Parameters of an MLflow run never change: a training that goes on with more machines could not attach to it."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    run = client.create_run(client.create_experiment("training", artifact_location=str(tmp_path / "artifacts")))
    environment = {"VERL_PLATFORM": "cpu", "MLFLOW_TRACKING_URI": uri, "MLFLOW_RUN_ID": run.info.run_id}
    for nodes in ("1", "2"):
        python(ATTACH, nodes, environment=os.environ | environment)
    assert client.get_run(run.info.run_id).data.params == {}
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["verl.yaml"]
    assert "nnodes: 2" in Path(client.download_artifacts(run.info.run_id, "verl.yaml", str(tmp_path))).read_text()
