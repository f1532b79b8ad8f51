"""What `elastic up` plans, configures and refuses; tests/integration/test_services.py runs it."""

import configparser
import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastic_core.errors import UserError
from elastic_core.system import network
from flows.commands import services
from flows.commands.cli import cli
from flows.commands.services import ServicesParameters, deployments, supervisor
from flows.commands.services.supervisor import Service
from flows.runtime.environment import read_variables, write_variables


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def names(plan: services.Plan) -> list[str]:
    return [service.name for service in plan.services]


def test_everything_stays_below_the_runs_directory(tmp_path: Path) -> None:
    plan = services.plan(ServicesParameters(runs=tmp_path, prefect_port=4300, mlflow_port=5100), {})
    assert names(plan) == ["prefect", "mlflow", "worker"]
    assert plan.environment["PREFECT_API_URL"] == "http://127.0.0.1:4300/api"
    assert plan.environment["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5100"
    assert plan.environment["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert plan.environment["MLFLOW_BACKEND_STORE_URI"] == f"sqlite:///{tmp_path}/mlflow.db"
    everywhere = services.plan(ServicesParameters(runs=tmp_path, host="0.0.0.0"), {})
    assert everywhere.environment["PREFECT_API_URL"] == "http://127.0.0.1:4200/api", "it is called on loopback"


def test_nothing_is_reported_to_anyone(tmp_path: Path) -> None:
    environment = services.plan(ServicesParameters(runs=tmp_path), {}).environment
    assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert environment["DO_NOT_TRACK"] == "1"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert environment["PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"] == "", "no page of another address may ask Prefect"


def test_servers_the_user_already_has_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example")
    monkeypatch.setenv("PREFECT_HOME", "elsewhere")
    plan = services.plan(ServicesParameters(runs=tmp_path), {})
    assert names(plan) == ["worker"]
    assert plan.environment["PREFECT_API_URL"] == "http://prefect.example/api"
    assert plan.environment["MLFLOW_TRACKING_URI"] == "http://mlflow.example"
    assert plan.environment["PREFECT_HOME"] == "elsewhere"


def test_a_database_the_user_named_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its password is on no command line."""
    address = "postgresql://me:secret@db.example/runs"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    plan = services.plan(ServicesParameters(runs=tmp_path), {})
    assert plan.environment["MLFLOW_BACKEND_STORE_URI"] == address
    assert "secret" not in str(plan.services)


def test_odd_paths_survive_the_configuration(tmp_path: Path) -> None:
    command = ["python", "100% of it/it's here.py"]
    text = supervisor.configure([Service("odd", command)], tmp_path, tmp_path / "socket")
    parsed = configparser.RawConfigParser()
    parsed.read_string(text)
    assert shlex.split(parsed["program:odd"]["command"] % {}) == command


def test_the_worker_stops_before_the_servers_it_reports_to(tmp_path: Path) -> None:
    plan = services.plan(ServicesParameters(runs=tmp_path), {})
    parsed = configparser.RawConfigParser()
    parsed.read_string(supervisor.configure(plan.services, tmp_path, tmp_path / "socket"))
    priority = {name: int(parsed[f"program:{name}"]["priority"]) for name in names(plan)}
    assert priority["worker"] > max(priority["prefect"], priority["mlflow"])


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


def test_a_port_just_left_is_free() -> None:
    with socket.socket() as left:
        left.bind(("127.0.0.1", 0))
        port = left.getsockname()[1]
    assert network.require_free_port("127.0.0.1", port, "prefect") is None


def test_up_without_deployments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no prefect\.yaml"):
        services.run_services(ServicesParameters(project=tmp_path, runs=tmp_path))


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
        "sqlite:///secret.db",
        "postgresql",
        "mysql://me:secret@127.0.0.1",
        "postgresql://me:secret@127.0.0.1:secret",
        "postgresql://me:sec@ret@127.0.0.1",
        "postgresql://me:secret@127.0.0.1/mlflow",
        "postgresql://me:secret@127.0.0.1?sslmode=require",
        "postgresql://:secret@127.0.0.1",
        "postgresql://me:secret@",
    ],
)
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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "prefect.yaml").touch()
    return tmp_path


def test_passwords_are_kept_between_starts(tmp_path: Path) -> None:
    parameters = ServicesParameters(runs=tmp_path)
    first = services.plan(parameters, {})
    assert services.plan(parameters, first.clients).clients == first.clients
    assert services.plan(parameters, {}).clients != first.clients


def test_a_shell_that_read_client_env_starts_the_same_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = ServicesParameters(runs=tmp_path)
    first = services.plan(parameters, {})
    for name, value in first.clients.items():
        monkeypatch.setenv(name, value)
    assert names(services.plan(parameters, first.clients)) == ["prefect", "mlflow", "worker"]


def test_passwords_lie_in_files_of_their_owner(tmp_path: Path) -> None:
    file = tmp_path / "client.env"
    assert read_variables(file) == {}
    write_variables(file, {"A": "b=c", "D": "e"})
    assert read_variables(file) == {"A": "b=c", "D": "e"}
    assert file.stat().st_mode & 0o777 == 0o600


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
