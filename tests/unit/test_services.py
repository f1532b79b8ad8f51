"""What `elastic up` plans, configures and refuses; tests/integration/test_services.py runs it."""

import configparser
import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from elastic_core.errors import UserError
from elastic_core.system import network
from flows.commands import services
from flows.commands.cli import cli
from flows.commands.services import ServicesParameters, deployments, supervisor
from flows.commands.services.supervisor import Service
from flows.commands.services.worker import registered
from flows.runtime.environment import read_variables, write_variables


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def names(plan: services.Plan) -> list[str]:
    return [service.name for service in plan.services]


def test_everything_stays_below_the_runs_directory_and_nothing_is_reported_to_anyone(tmp_path: Path) -> None:
    plan = services.plan(ServicesParameters(runs=tmp_path, prefect_port=4300, mlflow_port=5100), {})
    assert names(plan) == ["prefect", "mlflow", "worker"]
    assert plan.environment["PREFECT_API_URL"] == "http://127.0.0.1:4300/api"
    assert plan.environment["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5100"
    assert plan.environment["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert plan.environment["MLFLOW_BACKEND_STORE_URI"] == f"sqlite:///{tmp_path}/mlflow.db"
    assert plan.environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false", "nothing is reported to anyone"
    assert plan.environment["DO_NOT_TRACK"] == "1" and plan.environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    origins = plan.environment["PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"]
    assert origins == "", "no page of another address may ask Prefect"
    everywhere = services.plan(ServicesParameters(runs=tmp_path, host="0.0.0.0"), {})
    assert everywhere.environment["PREFECT_API_URL"] == "http://127.0.0.1:4200/api", "it is called on loopback"


def test_servers_the_user_already_has_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:mine@mlflow.example")
    monkeypatch.setenv("PREFECT_HOME", "elsewhere")
    monkeypatch.setenv("PREFECT_LOCAL_STORAGE_PATH", "/results")
    plan = services.plan(ServicesParameters(runs=tmp_path), {})
    assert names(plan) == ["worker"]
    assert plan.environment["PREFECT_API_URL"] == "http://prefect.example/api"
    assert plan.environment["MLFLOW_TRACKING_URI"] == "http://mlflow.example"
    assert plan.clients["MLFLOW_TRACKING_PASSWORD"] == "mine"
    assert plan.environment["PREFECT_HOME"] == "elsewhere"
    assert plan.environment["PREFECT_LOCAL_STORAGE_PATH"] == "/results"


def test_a_database_the_user_named_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its password is on no command line."""
    address = "postgresql://me:secret@db.example/runs"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    plan = services.plan(ServicesParameters(runs=tmp_path), {})
    assert plan.environment["MLFLOW_BACKEND_STORE_URI"] == address
    assert "secret" not in str(plan.services)


def test_the_worker_stops_before_the_servers_it_reports_to_and_odd_paths_survive(tmp_path: Path) -> None:
    plan, odd = services.plan(ServicesParameters(runs=tmp_path), {}), ["python", "100% of it/it's here.py"]
    parsed = configparser.RawConfigParser()
    parsed.read_string(supervisor.configure([*plan.services, Service("odd", odd)], tmp_path, tmp_path / "socket"))
    priority = {name: int(parsed[f"program:{name}"]["priority"]) for name in names(plan)}
    assert priority["worker"] > max(priority["prefect"], priority["mlflow"])
    assert shlex.split(parsed["program:odd"]["command"] % {}) == odd


def test_a_taken_port_names_the_port_its_owner_and_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as refused:
            network.require_free_port("127.0.0.1", port, "mlflow")
    message = str(refused.value)
    assert f"port {port}" in message and f"process {os.getpid()}" in message and "--mlflow-port" in message
    with pytest.raises(UserError, match=r"'nowhere\.invalid'"):
        network.require_free_port("nowhere.invalid", 4200, "prefect")
    assert network.require_free_port("127.0.0.1", port, "prefect") is None, "a port just left is free"


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {i}\n" for i in range(100)))
    told = supervisor.tail(log, lines=2)
    assert str(log) in told and told.endswith("\nline 98\nline 99")
    assert supervisor.tail(tmp_path / "none.log").endswith("(empty)")


def test_a_postgresql_server_holds_both_servers_data_and_no_password_is_on_a_command_line(tmp_path: Path) -> None:
    server = services.database_server("postgresql://me:se%40cret@127.0.0.1:5433")
    plan = services.plan(ServicesParameters(runs=tmp_path), {}, server)
    assert names(plan) == ["prefect", "mlflow", "worker"]
    prefect, mlflow = "postgresql+asyncpg://me@127.0.0.1:5433/prefect", "postgresql+psycopg2://me@127.0.0.1:5433/mlflow"
    assert plan.environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == prefect
    assert plan.environment["MLFLOW_BACKEND_STORE_URI"] == mlflow
    assert plan.environment["PGPASSWORD"] == "se@cret"
    commands = " ".join(word for service in plan.services for word in service.command)
    passwords = [value for name, value in plan.environment.items() if "PASSWORD" in name or "AUTH_STRING" in name]
    assert passwords and not [password for password in passwords if password in commands]


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///secret.db", "postgresql", "mysql://me:secret@127.0.0.1", "postgresql://me:secret@127.0.0.1:secret",
        "postgresql://me:sec@ret@127.0.0.1", "postgresql://me:secret@127.0.0.1/mlflow",
        "postgresql://me:secret@127.0.0.1?sslmode=require", "postgresql://:secret@127.0.0.1",
        "postgresql://me:secret@",
    ],
)  # fmt: skip
def test_what_is_no_database_server_is_refused_and_not_repeated(
    address: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    refused = CliRunner().invoke(cli, ["up"], env={"ELASTIC_DATABASE": address})
    assert isinstance(refused.exception, UserError)
    message = str(refused.exception)
    assert message.startswith("--database (or ELASTIC_DATABASE) is not the address") and "sec" not in message


def test_a_database_that_is_not_there_is_one_sentence_without_the_password(project: Path) -> None:
    address = f"postgresql://me:secret@127.0.0.1:{network.free_ports(1)[0]}"
    parameters = ServicesParameters(project=project, runs=project, database=address)
    with pytest.raises(UserError, match=r"docs/operate\.md") as refused:
        services.run_services(parameters)
    assert "secret" not in str(refused.value) and "secret" not in repr(parameters)
    with pytest.raises(UserError, match=r"has no prefect\.yaml"):
        services.run_services(ServicesParameters(project=project / "none", runs=project))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "prefect.yaml").touch()
    return tmp_path


def test_passwords_are_kept_between_starts_in_files_of_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters, file = ServicesParameters(runs=tmp_path), tmp_path / "client.env"
    first = services.plan(parameters, read_variables(file))
    write_variables(file, {**first.clients, "A": "b=c"})
    assert read_variables(file) == {**first.clients, "A": "b=c"} and file.stat().st_mode & 0o777 == 0o600
    assert services.plan(parameters, first.clients).clients == first.clients
    assert services.plan(parameters, {}).clients != first.clients
    for name, value in first.clients.items():
        monkeypatch.setenv(name, value)  # As in a shell that read client.env.
    assert names(services.plan(parameters, first.clients)) == ["prefect", "mlflow", "worker"]


def test_what_a_killed_process_of_the_same_id_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f".client.env.{os.getpid()}.tmp").touch(0o644)
    write_variables(tmp_path / "client.env", {"NAME": "secret"})
    (file,) = tmp_path.iterdir()
    assert file.read_text() == "NAME=secret\n" and file.stat().st_mode & 0o777 == 0o600


def test_a_server_that_does_not_say_what_is_paused_gets_no_deployments(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all that is paused there would be set going again."""
    asked: list[str] = []

    def prefect(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[5])
        failed = command[5] == "api"
        return subprocess.CompletedProcess(command, int(failed), "", "404 Not Found" if failed else "")

    monkeypatch.setattr(subprocess, "run", prefect)
    with pytest.raises(UserError, match=r"`prefect api POST /deployments/filter .*` failed in .*\n404 Not Found"):
        deployments.register(project, {"PREFECT_API_URL": "http://prefect.example/api"})
    assert asked == ["work-pool", "api"]


# Which deployments the worker knows.


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
    assert registered(file, "e1-math-7b", entrypoint)["tags"] == ["gpu", "pipeline"]
    for content in ({"deployments": [written]}, {"name": "empty"}):
        file.write_text(yaml.safe_dump(content))
        with pytest.raises(UserError, match=r"prefect\.yaml"):
            registered(file, "embedded", entrypoint)
