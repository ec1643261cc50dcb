"""Thumbnails: the content of a hostile image fills no memory and starts no program."""

import io
import os
import subprocess
import sys

import pytest
from PIL import Image

from skitter.store import media

SIZES = {"small": (50, 40), "big": (200, 200)}
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n"


def encoded(width, height, kind, mode="RGB", **options):
    file = io.BytesIO()
    Image.new(mode, (width, height), "red" if mode == "RGB" else 0).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_each_size_has_a_thumbnail(kind):
    made = media.make_thumbnails(io.BytesIO(encoded(400, 200, kind)), SIZES)
    sizes = {name: Image.open(io.BytesIO(content)).size for name, content in made.items()}
    assert sizes == {"small": (50, 25), "big": (200, 100)}


def test_a_turned_image_is_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    made = media.make_thumbnails(io.BytesIO(encoded(4000, 2000, "JPEG", exif=exif)), SIZES)
    assert Image.open(io.BytesIO(made["big"])).size == (100, 200)


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x89PNG\r\n\x1a\n", encoded(400, 200, "PNG")[:-100]])
def test_other_content_has_none(content):
    assert media.make_thumbnails(io.BytesIO(content), SIZES) == {}


@pytest.mark.parametrize(
    ("kind", "options", "has_some"),
    [
        ("PNG", {}, False),
        ("GIF", {}, False),
        ("JPEG", {"progressive": True}, False),
        ("JPEG", {}, True),
    ],
)
def test_a_large_image_has_one_only_if_it_can_be_decoded_at_a_smaller_scale(
    monkeypatch, kind, options, has_some
):
    monkeypatch.setattr(media, "_MAX_PIXELS", 10_000)
    content = io.BytesIO(encoded(101, 100, kind, **options))
    assert bool(media.make_thumbnails(content, SIZES)) == has_some


PEAK = """
import sys
from pathlib import Path
from skitter.store.media import make_thumbnails
make_thumbnails(Path(sys.argv[1]), {"small": (50, 50)})
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured on Linux")
@pytest.mark.parametrize(
    ("size", "mode", "limit"),
    [((12_000, 12_000), "L", 100), ((6_000, 5_000), "P", 260), ((6_000, 5_000), "RGB", 220)],
)
def test_the_memory_of_an_image_is_limited(tmp_path, size, mode, limit):
    """An image of 144 million pixels took 1.2 GB."""
    image = tmp_path / "bomb.png"
    image.write_bytes(encoded(*size, "PNG", mode=mode))
    assert image.stat().st_size < 1_000_000
    command = [sys.executable, "-c", PEAK, str(image)]
    peak_kb = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert peak_kb < limit * 1024


def test_a_postscript_file_starts_no_interpreter(tmp_path, monkeypatch):
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert media.make_thumbnails(io.BytesIO(EPS), SIZES) == {}
    assert not (tmp_path / "started").exists()
    with pytest.raises(Exception), Image.open(io.BytesIO(EPS)) as image:  # noqa: B017 - the control: Pillow starts it
        image.load()
    assert (tmp_path / "started").exists()
