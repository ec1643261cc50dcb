"""The compiled part of skitter. Everything else is declared in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "skitter.worker._link_table",
            ["src/skitter/worker/_link_table.c"],
            py_limited_api=True,
            optional=True,  # without a C compiler, its twin in Python is used
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
