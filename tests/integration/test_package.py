"""The built wheel contains all files that the code reads."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from skitter.worker import links

ROOT = Path(__file__).parents[2]


def build_wheel(folder, **environment):
    """Build the wheel from a copy without the files of earlier builds."""
    copy = folder / "skitter"
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=skipped)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "."]
    subprocess.run(
        [*build, "./skitter"], cwd=folder, check=True, capture_output=True, env=os.environ | environment
    )
    (file,) = folder.glob("skitter-*.whl")
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    with zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


def packed_files(archive):
    return {name for name in archive.namelist() if ".dist-info/" not in name}


SOURCE_FILES = {
    str(path.relative_to(ROOT / "src"))
    for path in (ROOT / "src/skitter").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".c", ".h", ".so"}
}
COMPILED = {
    "skitter/web/_url_join.abi3.so",
    "skitter/worker/_link_table.abi3.so",
    "skitter/frontier/embedded/_key_set.abi3.so",
    "skitter/frontier/embedded/_sorted_keys.abi3.so",
    "skitter/html/_tags.abi3.so",
    "skitter/web/_utf8.abi3.so",
}


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    assert packed_files(wheel) - COMPILED == SOURCE_FILES
    assert {"skitter/py.typed", "skitter/frontier/scripts/redis/lease.lua"} <= SOURCE_FILES


def test_one_wheel_with_compiled_modules_serves_all_versions_of_python(wheel):
    if links.LinkTable is links.PythonLinkTable:
        pytest.skip("there is no C compiler")
    assert packed_files(wheel) >= COMPILED
    assert "-cp311-abi3-" in wheel.filename


def test_the_wheel_is_built_without_a_compiler_too(tmp_path):
    with zipfile.ZipFile(build_wheel(tmp_path, CC=shutil.which("false"))) as archive:
        assert packed_files(archive) == SOURCE_FILES


def test_the_wheel_has_the_licence_and_the_command(wheel):
    about = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "LICENSE" in about
    assert "skitter = skitter.cli.main:main" in wheel.read(about["entry_points.txt"]).decode()
    assert "Requires-Python: >=3.11" in wheel.read(about["METADATA"]).decode()
