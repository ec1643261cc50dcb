"""What an installation gets: the wheel holds everything that the code reads beside itself."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("skitter-*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/skitter").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == source
    assert {"skitter/py.typed", "skitter/frontier/scripts/redis/lease.lua"} <= packed


def test_the_wheel_has_the_licence_and_the_command(wheel):
    about = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "LICENSE" in about
    assert "skitter = skitter.cli.main:main" in wheel.read(about["entry_points.txt"]).decode()
    assert "Requires-Python: >=3.11" in wheel.read(about["METADATA"]).decode()
