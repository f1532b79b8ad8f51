"""The files of infra/ and prefect.yaml, read by the parsers and schemas of the tools they are for."""

import json
import re
import shlex
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from elastic_core.serving.server import CLOSE_SECONDS, DRAIN_SECONDS
from flows import presets
from flows.commands import services
from flows.commands.cli import cli
from flows.commands.services import deployments

REPOSITORY = Path(__file__).parents[2]
INFRA = REPOSITORY / "infra"
ENGINES = ("cpu", "gpu")
VARIABLE = re.compile(r"\$\{(\w+)")


def command_named(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def load(name: str) -> Any:
    return yaml.safe_load((INFRA / name).read_text())


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return load("compose.yaml")


def test_compose_follows_the_compose_specification(compose: dict[str, Any]) -> None:
    schema = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(compose)


def test_compose_publishes_on_loopback_pins_its_images_mounts_what_exists_and_waits_for_health(
    compose: dict[str, Any],
) -> None:
    services = compose["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 4 and all(port.startswith("127.0.0.1:") for port in ports)
    for service in services.values():
        if "build" in service:
            assert (INFRA / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        else:
            assert re.search(r":v?\d+\.\d+", service["image"]), service["image"]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (INFRA / source).is_file() if source.startswith(".") else source in compose["volumes"]
        for name, dependency in service.get("depends_on", {}).items():
            assert dependency == {"condition": "service_healthy"} and "healthcheck" in services[name]
    configuration = Path(services["mlflow"]["environment"]["MLFLOW_AUTH_CONFIG_PATH"])
    assert (REPOSITORY / configuration.relative_to("/opt/elastic")).is_file()
    only_when_asked = {name for name, service in services.items() if service.get("profiles")}
    assert only_when_asked == {"serve", "prometheus", "grafana"}


def test_every_password_of_compose_is_in_the_example_and_git_keeps_none() -> None:
    lines = [line for line in (INFRA / ".env.example").read_text().splitlines() if not line.startswith("#")]
    assert all(line.endswith("=") for line in lines), "an example holds no password"
    assert {line[:-1] for line in lines} == set(VARIABLE.findall((INFRA / "compose.yaml").read_text()))
    assert ".env" in (INFRA / ".gitignore").read_text().split()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_is_made_from_its_lock_and_files_that_exist(engine: str) -> None:
    text = (INFRA / "containers" / f"Containerfile.{engine}").read_text().replace("\\\n", " ")
    instructions = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    arguments: dict[str, list[str]] = {}
    for name, argument in instructions:
        arguments.setdefault(name, []).append(argument)
    assert instructions[0][0] == "FROM" and re.search(r":3\.11", arguments["FROM"][0])
    copied = [source for argument in arguments["COPY"] for source in argument.split()[:-1]]
    assert all((REPOSITORY / source).exists() for source in copied)
    assert "infra" not in copied, "infra/.env would end up in the image"
    packages = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - {"tests"}
    assert packages <= set(copied)
    run = " ".join(arguments["RUN"])
    assert f"--requirement infra/requirements/{engine}.txt" in run and "bubblewrap" in run
    assert arguments["USER"] == ["elastic"]
    assert [name for name, _ in instructions[-2:]] == ["USER", "CMD"]


def test_models_of_the_hub_lie_where_every_node_of_kubernetes_sees_them() -> None:
    text = (INFRA / "containers" / "Containerfile.gpu").read_text()
    (home,) = re.findall(r"HF_HOME=(\S+)", text)
    cluster = load("kuberay/raycluster.yaml")["spec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        shared = {volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume}
        mounts = [mount for each in pod["containers"] for mount in each["volumeMounts"] if mount["name"] in shared]
        assert any(Path(home).is_relative_to(mount["mountPath"]) for mount in mounts)


def test_ray_takes_the_cluster_file_and_nobody_reaches_the_cluster_without_a_token() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(load("ray-cluster.yaml"))
    validate_config(prepared)
    assert prepared["max_workers"] == len(prepared["provider"]["worker_ips"])
    assert prepared["head_setup_commands"] and not prepared["worker_setup_commands"], "they share one environment"
    cluster = load("ray-cluster.yaml")
    starts = [*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]]
    assert all("RAY_AUTH_MODE=token" in command for command in starts if "ray start" in command)
    assert load("kuberay/raycluster.yaml")["spec"]["authOptions"] == {"mode": "token"}


def test_ray_reads_the_cluster_of_kubernetes() -> None:
    """KubeRay's schema comes in no package; Ray's own autoscaler reads the same resource."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler._private.util import validate_config

    cluster = load("kuberay/raycluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    read = _derive_autoscaling_config_from_ray_cr(cluster)
    validate_config(read)
    assert read["available_node_types"]["gpu"]["resources"]["GPU"] == 8
    assert cluster["spec"]["rayVersion"] == metadata.version("ray")
    assert cluster["spec"].keys() <= {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        claimed = {volume["name"] for volume in pod["volumes"]}
        assert all(mount["name"] in claimed for each in pod["containers"] for mount in each["volumeMounts"])


def test_the_job_of_kubernetes_is_a_command_of_ours() -> None:
    job = load("kuberay/rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"].keys() == {"clusterSelector", "submissionMode", "entrypoint"}
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": load("kuberay/raycluster.yaml")["metadata"]["name"]}
    program, command, *arguments = shlex.split(job["spec"]["entrypoint"].replace("$RAY_ADDRESS", "10.0.0.1:6379"))
    assert program == "elastic"
    given = command_named(command).make_context(command, arguments).params
    settings = presets.resolve(given["preset"], given["overrides"])
    assert settings.ray.running is not None and settings.train.device == "gpu"


METRIC = re.compile(r"\b(?:elastic_|vllm:)\w+")


def expressions() -> list[str]:
    """What the dashboard asks Prometheus."""
    panels = json.loads((INFRA / "grafana" / "serve.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def test_the_dashboard_shows_metrics_that_vllm_has_and_every_one_of_ours() -> None:
    from prometheus_client import Counter, Gauge, Histogram

    from elastic_core.serving import admission, middleware

    shown = {name for text in expressions() for name in METRIC.findall(text)}
    theirs = {name for name in shown if name.startswith("vllm:")}
    vllm = find_spec("vllm")
    assert vllm is not None and vllm.origin is not None
    source = Path(vllm.origin).with_name("v1").joinpath("metrics", "loggers.py").read_text()
    assert len(theirs) == 7
    assert {re.sub("_(bucket|total)$", "", name) for name in theirs} <= set(re.findall(r'name="(vllm:\w+)"', source))
    values = [each for module in (admission, middleware) for each in vars(module).values()]
    ours = [each for each in values if isinstance(each, Counter | Gauge | Histogram)]
    known = {metric.name for each in ours for metric in each.collect()}
    assert {re.sub("_(total|bucket|sum|count)$", "", name) for name in shown - theirs} == known


def test_grafana_finds_its_dashboard_and_prometheus_the_server(compose: dict[str, Any]) -> None:
    services = compose["services"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    (provider,) = load("grafana/dashboards.yaml")["providers"]
    assert mounts["./grafana/serve.json"].startswith(provider["options"]["path"])
    (source,) = load("grafana/datasources.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    dashboard = json.loads((INFRA / "grafana" / "serve.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    variables = dashboard["templating"]["list"]
    assert {each["datasource"]["uid"] for each in (*targets, *variables)} == {source["uid"]}
    (job,) = load("prometheus/prometheus.yaml")["scrape_configs"]
    ((host, port),) = [target.split(":") for target in job["static_configs"][0]["targets"]]
    assert f"127.0.0.1:{port}:{port}" in services[host]["ports"]


def test_kubernetes_and_compose_serve_by_a_command_of_ours(compose: dict[str, Any]) -> None:
    deployment, _ = yaml.safe_load_all((INFRA / "kubernetes" / "serve.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]
    for given, gpus in (
        (container["command"], int(limits["nvidia.com/gpu"])),
        (compose["services"]["serve"]["command"], 0),
    ):
        program, command, *arguments = given
        parameters = command_named(command).make_context(command, arguments).params
        assert program == "elastic"
        assert (parameters["host"], parameters["port"]) == ("0.0.0.0", 8000)
        settings = presets.resolve(parameters["preset"], parameters["overrides"])
        assert parameters["model"] in settings.measured
        assert parameters["budget"].total
        assert settings.engine.data_parallel_size * settings.engine.num_gpus == gpus


def test_the_deployment_of_kubernetes_fits_its_service() -> None:
    deployment, service = yaml.safe_load_all((INFRA / "kubernetes" / "serve.yaml").read_text())
    assert [(each["apiVersion"], each["kind"]) for each in (deployment, service)] == [
        ("apps/v1", "Deployment"),
        ("v1", "Service"),
    ]
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    pod = template["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports.keys()
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert all(probe == {"path": "/health", "port": "http"} for probe in probes)
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(ports["http"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_SECONDS + CLOSE_SECONDS


def test_prefect_takes_the_automation() -> None:
    from prefect.events.schemas.automations import AutomationCore, EventTrigger

    automation = AutomationCore.model_validate(load("prefect/automation.yaml"))
    assert (REPOSITORY / deployments.AUTOMATION) == INFRA / "prefect" / "automation.yaml"
    assert isinstance(automation.trigger, EventTrigger)
    assert "prefect.flow-run.heartbeat" in automation.trigger.after & automation.trigger.expect
    assert automation.actions[0].model_dump()["state"] == "CRASHED"
    beat = int(services.plan(services.ServicesParameters(), {}).environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])
    assert automation.trigger.within.total_seconds() >= 3 * beat, "a late heartbeat is not a death"


def test_prefect_takes_the_deployments() -> None:
    from prefect.cli.deploy._models import DeploymentConfig, PrefectYamlModel
    from prefect.flows import load_flow_from_entrypoint

    PrefectYamlModel.model_validate(yaml.safe_load((REPOSITORY / "prefect.yaml").read_text()))
    wanted = deployments.deployments_of(REPOSITORY / "prefect.yaml")
    parsed = PrefectYamlModel.model_validate({"deployments": wanted})
    for given, deployment in zip(wanted, parsed.deployments, strict=True):
        assert given.keys() <= DeploymentConfig.model_fields.keys()
        assert deployment.work_pool and deployment.work_pool.name == deployments.WORK_POOL
        flow = load_flow_from_entrypoint(str(REPOSITORY / str(deployment.entrypoint)))
        parameters = flow.validate_parameters(deployment.parameters)
        assert presets.resolve(parameters["preset"], parameters.get("overrides"))
    deployed = {(each["entrypoint"], each["parameters"]["preset"]) for each in wanted}
    assert {preset for _, preset in deployed} == set(presets.names())
    (first,) = [each for each in wanted if "begin-here" in each["tags"]]
    assert (first["name"], first["entrypoint"]) == ("embedded", "flows/pipeline.py:pipeline")
    released = {name for name in presets.names() if name.startswith("evaluate-")}
    on_cpu = {
        each["parameters"]["preset"]
        for each in wanted
        if each["entrypoint"] == "flows/pipeline.py:pipeline" and "cpu" in each["tags"]
    }
    assert {"embedded", "smoke"} <= on_cpu and not on_cpu & released
    assert {preset for entrypoint, preset in deployed if entrypoint == "flows/sweep.py:sweep"} == released | on_cpu


CLUSTER_PAGE = (REPOSITORY / "docs" / "cluster.md").read_text().replace("\\\n", " ")
"""Commands on one line each."""


def test_every_shell_of_the_cluster_page_downloads_models_to_the_shared_directory() -> None:
    exports = re.findall(r"^ +export .*HF_HOME=/shared/", CLUSTER_PAGE, re.MULTILINE)
    assert len(exports) == 3, "of the environment, of the services with their worker, of the run"


def test_the_cluster_page_s_deployment_run_joins_the_cluster() -> None:
    (run,) = re.findall(r"^ +prefect deployment run (.+)", CLUSTER_PAGE, re.MULTILINE)
    name, option, parameter = shlex.split(run)
    key, _, value = parameter.partition("=")
    assert (option, key) == ("--param", "overrides")
    deployed = deployments.deployments_of(REPOSITORY / "prefect.yaml")
    (deployment,) = [each for each in deployed if f"pipeline/{each['name']}" == name]
    settings = presets.resolve(deployment["parameters"]["preset"], json.loads(value))
    (command,) = re.findall(r"^ +elastic (run .+)", CLUSTER_PAGE, re.MULTILINE)
    assert {f"ray.address={settings.ray.address}", f"ray.dashboard={settings.ray.dashboard}"} <= set(command.split())


def test_compose_and_up_are_as_closed_and_beat_alike(compose: dict[str, Any]) -> None:
    plan = services.plan(services.ServicesParameters(), {})
    for service, name in (
        ("prefect", "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"),
        ("worker", "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"),
    ):
        assert compose["services"][service]["environment"][name] == plan.environment[name]
    worker = " ".join(plan.services[-1].command[1:])
    assert compose["services"]["worker"]["command"][-1].endswith(f"exec python {worker}")
