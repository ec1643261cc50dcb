"""The deployment files use commands that skitter has, and give workers enough time to drain."""

import configparser
import copy
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from skitter.cli.main import skitter
from skitter.run.loader import find_spider
from skitter.store.outputs import open_output
from skitter.worker import DRAIN_SECONDS
from skitter.worker.seeds import read_seed

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "skitter@.service"
LEAST_GRACE = DRAIN_SECONDS + 5 + 10
"""Seconds: the owner ends workers 5 s after the drain, then it merges outputs."""


def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def kustomization():
    return yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())


def objects():
    """Return every Kubernetes object with its file."""
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            yield path.name, each


def pods():
    return {
        f"{name}:{each['metadata']['name']}": each for name, each in objects() if "template" in each["spec"]
    }


def unit():
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def commands():
    """Return the arguments of each call of skitter, with example values for variables."""
    found = {
        f"compose:{name}": service["command"]
        for name, service in compose()["services"].items()
        if service["image"] == "skitter" and "command" in service
    }
    for place, each in pods().items():
        for container in each["spec"]["template"]["spec"]["containers"]:
            if container["image"] == "skitter":
                found[place] = container["args"]
    found["systemd"] = shlex.split(unit()["ExecStart"])[1:]
    values = {"SKITTER_FRONTIER": "redis://cache/0", "SKITTER_OUTPUT": "items.jsonl", "SKITTER_WORKERS": "2"}
    return {
        place: [
            re.sub(r"\$[({](\w+)[^})]*[})]", lambda name: values.get(name[1], "secret"), word)
            for word in words
        ]
        for place, words in found.items()
    }


def parsed(words):
    """Parse a command line with click. Return the parameters of the command."""
    name, command, rest = skitter.resolve_command(skitter.make_context("skitter", ["jobs"]), words)
    return command.make_context(name, rest).params


def every_place():
    return [pytest.param(words, id=place) for place, words in commands().items()]


@pytest.mark.parametrize("words", every_place())
def test_every_command_of_the_deployment_files_is_one_that_skitter_understands(words):
    given = parsed(words)
    assert given["frontier"].startswith("redis://")
    for target in given.get("outputs", ()):
        open_output(target)


def test_every_kind_of_deployment_has_a_command():
    assert set(commands()) == {
        "compose:worker", "compose:seeds", "workers.yaml:workers", "crawl-job.yaml:crawl", "seeds.yaml:seeds", "systemd",
    }  # fmt: skip


def test_seeds_go_to_the_job_and_the_server_of_the_workers():
    calls = {place: parsed(words) for place, words in commands().items()}
    for seeds, workers in (
        ("compose:seeds", "compose:worker"),
        ("seeds.yaml:seeds", "workers.yaml:workers"),
        ("seeds.yaml:seeds", "crawl-job.yaml:crawl"),
    ):
        assert calls[seeds]["job"] == calls[workers]["job"]
        assert calls[seeds]["frontier"] == calls[workers]["frontier"]


def test_workers_that_are_always_started_again_wait_for_seeds_and_those_of_a_job_end():
    waits = {
        place: parsed(words)["wait_for_seeds"]
        for place, words in commands().items()
        if "wait_for_seeds" in parsed(words)
    }
    assert waits["compose:worker"] and waits["workers.yaml:workers"]
    assert not waits["crawl-job.yaml:crawl"] and not waits["systemd"]


def test_every_way_to_stop_leaves_the_time_to_drain():
    graces = {"systemd": float(unit()["TimeoutStopSec"])}
    graces["compose"] = float(compose()["services"]["worker"]["stop_grace_period"].removesuffix("s"))
    for name in ("workers.yaml:workers", "crawl-job.yaml:crawl"):
        graces[name] = pods()[name]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert min(graces.values()) >= LEAST_GRACE, graces


def test_the_unit_signals_the_owner_alone_and_takes_an_interrupted_crawl_for_a_stop():
    service = unit()
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert (service["Restart"], service["SuccessExitStatus"]) == ("on-failure", "130")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here to verify a unit")
def test_systemd_accepts_the_unit(tmp_path):
    program = Path(sys.executable).with_name("skitter")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/skitter/bin/skitter", str(program)))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in result.stderr.splitlines() if "skitter@" in line]
    assert not complaints


@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_kubernetes_knows_every_object_with_all_its_fields(version):
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for _, each in objects():
        schemas.validate(each, version, strict=True)
    mistaken = copy.deepcopy(pods()["workers.yaml:workers"])
    mistaken["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(schemas.ValidationError, match="volumeMount"):
        schemas.validate(mistaken, version, strict=True)


def test_every_pod_is_one_for_a_namespace_whose_pods_are_restricted():
    """The requirements of the Pod Security Standards at their level "restricted"; and files of the image are read-only."""
    for name, each in pods().items():
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False, name
        for volume in pod.get("volumes", ()):
            assert volume.keys() & {"configMap", "emptyDir"}, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name
        assert (each["kind"] == "Job") == ("restartPolicy" in pod), name


def test_a_password_of_compose_may_hold_spaces_and_quotes():
    """A command that is one string is split after variables are substituted."""
    commands = [service["command"] for service in compose()["services"].values() if "command" in service]
    assert len(commands) == 3
    assert all(isinstance(command, list) for command in commands)


def test_containers_of_compose_share_no_folder_to_crawl_in():
    assert all(":/spiders/" in volume for volume in compose()["services"]["worker"]["volumes"])


def test_postgresql_is_healthy_only_once_it_takes_connections_from_outside():
    """While it creates the database, it listens only on its own socket."""
    assert "--host=localhost" in compose()["services"]["postgres"]["healthcheck"]["test"]


def test_the_image_is_built_of_all_that_it_needs_and_of_nothing_else():
    copied = [
        word
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    ignored, *rules = [
        line
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert ignored == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(copied)
    assert all((DEPLOY.parent / name).exists() for name in copied)


def test_every_mounted_selected_and_read_object_exists():
    generated = {each["name"] for each in kustomization()["configMapGenerator"]}
    labels = {
        name: each["spec"]["template"]["metadata"].get("labels", {}).items() for name, each in pods().items()
    }
    for name, each in pods().items():
        pod = each["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        claimed = {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", ())}
        for container in pod["containers"]:
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            assert mounts == volumes.keys() | claimed, name
            known = {variable["name"] for variable in container.get("env", ())}
            assert {*re.findall(r"\$\((\w+)\)", " ".join(container["args"]))} <= known, name
            secrets = [variable["valueFrom"]["secretKeyRef"]["name"] for variable in container["env"]]
            assert set(secrets) == {"skitter"}, name
        assert {
            volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume
        } <= generated
        if each["kind"] != "Job":
            assert each["spec"]["selector"]["matchLabels"].items() == labels[name]
    for name, each in objects():
        if each["kind"] in {"PodDisruptionBudget", "Service"}:
            selector = each["spec"]["selector"]
            selector = selector.get("matchLabels", selector)
            assert any(selector.items() <= found for found in labels.values()), name


def test_all_combined_files_exist():
    put = kustomization()
    files = [*put["resources"], *(file for each in put["configMapGenerator"] for file in each["files"])]
    assert all((DEPLOY / file).is_file() for file in files)
    mounted = [
        volume.split(":")[0]
        for service in compose()["services"].values()
        for volume in service.get("volumes", ())
    ]
    assert all((DEPLOY / file).is_file() for file in mounted if file.startswith("./"))


def test_no_file_contains_a_password():
    for path in DEPLOY.rglob("*.*"):
        if "__pycache__" in path.parts:
            continue
        for found in re.findall(r"(?i)(?:password|://[^\s/]*?):([^\s/@]+)@", path.read_text()):
            assert found.startswith(("$", "PASSWORD")), (path.name, found)


def test_the_shipped_spider_and_seeds_are_not_empty():
    name, spider = find_spider(str(DEPLOY / "pages.py"))
    assert name.endswith("pages.py:Pages")
    assert spider.name == "pages"
    lines = [line for line in (DEPLOY / "seeds.txt").read_text().splitlines() if not line.startswith("#")]
    assert [read_seed(line.encode()).url for line in lines] == [
        "https://example.com/", "https://www.example.org/",
    ]  # fmt: skip
