"""Which deployments the worker knows; tests/integration/test_services.py runs it."""

from pathlib import Path

import pytest
import yaml

from elastic_core.errors import UserError
from flows.commands.services.worker import registered

REPOSITORY = Path(__file__).parents[2]


def test_a_deployment_is_known_by_its_name_and_its_code() -> None:
    found = registered(REPOSITORY / "prefect.yaml", "embedded", "flows/nightly.py:nightly")
    assert found["schedules"] == [{"cron": "0 3 * * *", "timezone": "UTC"}]


@pytest.mark.parametrize(
    ("name", "entrypoint"), [("embedded", "x.py:y"), ("other", "flows/sweep.py:sweep"), ("a", None)]
)
def test_any_other_is_refused_with_those_that_there_are(name: str, entrypoint: str | None) -> None:
    with pytest.raises(UserError, match=r"prefect\.yaml.*embedded \(flows/pipeline\.py:pipeline"):
        registered(REPOSITORY / "prefect.yaml", name, entrypoint)


def test_a_deployment_that_is_written_out_takes_the_place_of_its_preset_s(tmp_path: Path) -> None:
    entrypoint, pool = "flows/pipeline.py:pipeline", {"name": "elastic"}
    written = {"name": "smoke", "entrypoint": entrypoint, "tags": ["mine"]}
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump({"presets": {"work_pool": pool}, "deployments": [written]}))
    assert registered(file, "smoke", entrypoint) == written
    assert registered(file, "embedded", entrypoint)["work_pool"] == pool
    assert registered(file, "e1-math-7b", entrypoint)["tags"] == ["gpu"]
    for content in ({"deployments": [written]}, {"name": "empty"}):
        file.write_text(yaml.safe_dump(content))
        with pytest.raises(UserError, match=r"prefect\.yaml"):
            registered(file, "embedded", entrypoint)
