"""The choice of an output by its name: suffix, scheme, options, entry points."""

import re
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from skitter.errors import StoreError
from skitter.store.contract import OutputContext
from skitter.store.file_output import FileOutput
from skitter.store.merge import Format
from skitter.store.outputs import OutputAddress, open_output, stores_for, with_duplicates
from skitter.store.selection import ItemClasses, SelectingOutput, SelectingStore, ranges_of_selection
from skitter.store.sqlite import SqliteOutput
from skitter.store.stdout import StdoutOutput


@pytest.mark.parametrize(
    ("target", "path", "form"),
    [
        ("items.jsonl", "items.jsonl", Format()),
        ("a/b.c/items.JSONL", "a/b.c/items.JSONL", Format()),
        ("items.jl", "items.jl", Format()),
        ("items.ndjson", "items.ndjson", Format()),
        ("2026.11.21.jsonl.gz", "2026.11.21.jsonl.gz", Format(compression="gz")),
        ("items.jsonl.zst", "items.jsonl.zst", Format(compression="zst")),
        ("items.csv", "items.csv", Format("csv")),
        ("items.csv.gz", "items.csv.gz", Format("csv", "gz")),
        ("jsonl:items.txt", "items.txt", Format()),
        ("csv:///tmp/items", "/tmp/items", Format("csv")),
        ("items.csv?delimiter=semicolon", "items.csv", Format("csv", delimiter=";")),
        ("jsonl.gz:items.csv", "items.csv", Format(compression="gz")),
        ("12:30.jsonl", "12:30.jsonl", Format()),
        ("what?x=1.jsonl", "what?x=1.jsonl", Format()),
    ],
)
def test_the_name_selects_the_file_and_its_format(target, path, form):
    output = open_output(target)
    assert isinstance(output, FileOutput)
    assert (output.target, str(output.path), output._format) == (target, path, form)


@pytest.mark.parametrize(
    ("target", "path", "table"),
    [
        ("items.db", "items.db", "items"),
        ("items.sqlite", "items.sqlite", "items"),
        ("items.sqlite3", "items.sqlite3", "items"),
        ("sqlite:items.data", "items.data", "items"),
        ("sqlite:///tmp/items.db?table=quotes", "/tmp/items.db", "quotes"),
        ("items.db?table=my%20quotes", "items.db", "my quotes"),
    ],
)
def test_the_name_selects_the_database_and_its_table(target, path, table):
    output = open_output(target)
    assert isinstance(output, SqliteOutput)
    assert (output.target, str(output._path), output._table) == (target, path, table)


def test_a_dash_is_stdout():
    assert isinstance(open_output("-"), StdoutOutput)


@pytest.mark.parametrize(
    "target", ["items", "items.docx", "oracle://db/quotes", "", ".", "jsonl", "b.gz", ":"]
)
def test_an_unknown_kind_is_refused_and_examples_are_named(target):
    with pytest.raises(StoreError, match=re.escape(repr(target))) as caught:
        open_output(target)
    assert "jsonl" in caught.value.remedy
    assert "guide on outputs" in caught.value.remedy


@pytest.mark.parametrize(
    "target", ["items.csv?fields=", "items.jsonl?fields=,", "s3://bucket/items.json?fields=%20"]
)
def test_a_choice_of_no_fields_is_refused(target):
    with pytest.raises(StoreError) as caught:
        open_output(target)
    assert caught.value.field == "fields"


@pytest.mark.parametrize(
    ("target", "kind"), [("items.jsnl", "jsonl"), ("items.parqet", "parquet"), ("postgres1://x", "postgres")]
)
def test_the_kind_that_was_probably_meant_is_named(target, kind):
    with pytest.raises(StoreError) as caught:
        open_output(target)
    assert kind in caught.value.remedy


@pytest.mark.parametrize("target", ["items.db?tabel=x", "items.csv?delimiter=;", "sqlite:items?x=1&table=y"])
def test_an_unknown_option_is_refused(target):
    with pytest.raises(StoreError, match=re.escape(repr(target))) as caught:
        open_output(target)
    assert caught.value.field in {"tabel", "delimiter", "x"}
    assert caught.value.remedy


@pytest.mark.parametrize(
    "target", ["%(name)s-%(time)s.jsonl", "s3://b/%(batch_id)s.csv", "day=%(day)s/items.db"]
)
def test_a_name_that_nothing_replaces_is_refused(target):
    with pytest.raises(StoreError, match=r"unknown name %\((time|batch_id|day)\)s") as caught:
        open_output(target)
    assert "%(job)s" in caught.value.remedy
    assert "$(date " in caught.value.remedy
    open_output("%(name)s-%(spider)s-%(job)s.jsonl")  # of a recipe: the run replaces the names


def another_output(address: OutputAddress) -> StdoutOutput:
    output = StdoutOutput()
    output.address = address
    return output


@pytest.fixture
def installed(monkeypatch):
    points = EntryPoints(
        [
            EntryPoint("feather", f"{__name__}:another_output", "skitter.stores"),
            EntryPoint("broken", "no_such_package:Thing", "skitter.stores"),
            EntryPoint("other", f"{__name__}:another_output", "someone.elses"),
        ]
    )
    monkeypatch.setattr("skitter.plugins._offered", lambda group: points.select(group=group))


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("a/items.feather", OutputAddress("a/items.feather", "feather", "a/items.feather")),
        (
            "feather://host/x?k=v&e=",
            OutputAddress("feather://host/x?k=v&e=", "feather", "host/x", {"k": "v", "e": ""}),
        ),
        ("x.feather?rows=10", OutputAddress("x.feather?rows=10", "feather", "x.feather", {"rows": "10"})),
    ],
)
def test_another_package_adds_a_kind_by_scheme_and_suffix(installed, target, address):
    assert open_output(target).address == address


def test_a_kind_of_another_package_is_named_and_its_broken_import_explained(installed):
    with pytest.raises(StoreError) as unknown:
        open_output("items.fether")
    assert "feather" in unknown.value.remedy
    with pytest.raises(StoreError, match="no_such_package") as broken:
        open_output("broken:x")
    assert "install" in broken.value.remedy


def test_a_factory_that_returns_no_output_is_an_error_that_names_the_base_class():
    with pytest.raises(StoreError, match="object is not an output") as caught:
        open_output("builtins:object")
    assert "skitter.store.contract.Output" in caught.value.remedy


@pytest.mark.parametrize(
    ("target", "is_keyed", "is_append_only"),
    [
        ("a.jsonl", False, False),
        ("-", False, True),
        ("redis://localhost/0/items", False, True),
        ("a.db", True, False),
        ("postgresql://localhost/a", True, False),
    ],
)
def test_an_output_declares_how_it_keeps_items(target, is_keyed, is_append_only):
    output = open_output(target)
    assert (output.is_keyed, output.is_append_only) == (is_keyed, is_append_only)


def test_two_names_of_one_file_are_one_location(tmp_path):
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "items.jsonl")
    assert len({open_output(f"{tmp_path}/{name}.jsonl").location for name in ("items", "link")}) == 1


@pytest.mark.parametrize("fleet", [False, True])
def test_a_redis_output_stages_its_items_only_in_a_fleet(fleet):
    [store] = stores_for([open_output("redis://localhost/0/items")], fleet=fleet)
    assert type(store).__name__ == ("RedisStagingStore" if fleet else "PartFileStore")


def test_outputs_of_one_stream_share_a_store():
    names = ["a.jsonl", "b.csv", "-", "x.db", "./x.db", "x.db?table=y"]
    assert len(stores_for([open_output(name) for name in names])) == 3


async def test_an_existing_file_is_foreign_unless_this_job_merged_it_and_it_is_unchanged(tmp_path):
    target = tmp_path / "items.jsonl"
    job = OutputContext("quotes", str(tmp_path))
    output = open_output(str(target))
    assert not await output.occupied(job)
    target.touch()
    assert not await output.occupied(job), "an empty file holds nothing that could be lost"
    target.write_text("precious")
    assert await output.occupied(job)
    (tmp_path / "parts" / "items").mkdir(parents=True)
    (tmp_path / "parts" / "items" / "w1.jsonl").write_text('{"a":1}\n')
    await output.merge(job, {"items/w1.jsonl": [(0, 8)]})
    assert not await output.occupied(job)
    with target.open("a") as file:
        file.write("a note\n")
    assert await output.occupied(job)


def job_with_an_item(folder, name):
    (folder / name / "parts" / "items").mkdir(parents=True)
    (folder / name / "parts" / "items" / "w1.jsonl").write_text(f'{{"job":"{name}"}}\n')
    return OutputContext(name, str(folder / name)), {"items/w1.jsonl": [(0, 12)]}


async def test_a_job_does_not_replace_the_file_that_another_one_has_written_meanwhile(tmp_path):
    """Neither job found a file when it started."""
    target = tmp_path / "items.jsonl"
    jobs = [(open_output(str(target)), *job_with_an_item(tmp_path, name)) for name in ("a", "b")]
    for output, job, _ in jobs:
        await output.check(job)
        assert not await output.occupied(job)
    (first, job, ranges), (second, other, more) = jobs
    await first.merge(job, ranges)
    with pytest.raises(StoreError, match="has changed since the run began"):
        await second.merge(other, more)
    assert target.read_text() == '{"job":"a"}\n'
    await first.merge(job, ranges)


async def test_a_fresh_job_replaces_the_file_that_it_has_found(tmp_path):
    target = tmp_path / "items.jsonl"
    target.write_text("of another job")
    output, (job, ranges) = open_output(str(target)), job_with_an_item(tmp_path, "a")
    await output.check(job)
    await output.merge(job, ranges)
    assert target.read_text() == '{"job":"a"}\n'


@pytest.mark.parametrize(
    ("target", "plain"),
    [
        ("items.csv?item_classes=Book", "items.csv"),
        ("items.csv?fields=a,b&item_classes=Book", "items.csv?fields=a,b"),
        ("items.db?item_classes=Book&table=books", "items.db?table=books"),
        ("-?item_classes=Book", "-"),
        ("xml:items?item_classes=Book", "xml:items"),
        ("items.jsonl?item_classes=models.Db", "items.jsonl"),  # not the suffix of a database
        ("s3://bucket/items.jsonl?item_classes=Book&endpoint_url=http://h", "s3://bucket/items.jsonl?endpoint_url=http://h"),
        ("redis://h/0/books?item_classes=Book&type=stream", "redis://h/0/books?type=stream"),
        ("mongodb://h/shop/books?item_classes=Book&replicaSet=r", "mongodb://h/shop/books?replicaSet=r"),
        ("postgresql://h/shop?table=books&item_classes=Book", "postgresql://h/shop?table=books"),
        ("mysql://h/shop?table=books&item_classes=Book", "mysql://h/shop?table=books"),
        ("kafka://h:9092/books?item_classes=Book", "kafka://h:9092/books"),
        ("opensearch://h:9200/books?item_classes=Book", "opensearch://h:9200/books"),
    ],
)  # fmt: skip
def test_every_kind_of_output_can_select_items_by_class(target, plain):
    output, of_all = open_output(target), open_output(plain)
    assert isinstance(output, SelectingOutput)
    assert type(output.output) is type(of_all)
    assert output.item_classes.names == (target.partition("item_classes=")[2].partition("&")[0],)
    assert (output.location, output.is_keyed, output.is_append_only) == (
        of_all.location, of_all.is_keyed, of_all.is_append_only,
    )  # fmt: skip
    assert output.stream.startswith(f"{of_all.stream}-of-")
    assert output.fleet_stream.startswith(f"{of_all.fleet_stream}-of-")
    assert type(stores_for([output])[0]) is SelectingStore


def test_a_selection_does_not_depend_on_the_order_of_its_names():
    names = [
        "a.jsonl?item_classes=A,shop.items:B",
        "b.csv?item_classes=shop.items.B,A",
        "c.jsonl?item_classes=A",
    ]
    assert len(stores_for([open_output(name) for name in names])) == 2


def test_near_duplicates_are_marked_in_a_file_of_a_selection():
    assert with_duplicates("a.jsonl?item_classes=A", "mark") == "a.jsonl?item_classes=A&duplicates=mark"
    assert with_duplicates("a.db?item_classes=A", "mark") == "a.db?item_classes=A"


def test_parts_are_told_apart_by_their_selection_not_by_the_name_of_their_machine():
    one, other = ItemClasses(["A"]), ItemClasses(["B"])
    all_items = {"items/box-of-tea-7.jsonl": [(0, 1)], "items-0123456789abcdef/w1.jsonl": [(0, 2)]}
    of_one = {f"items-of-{one.key}/w1-of-{one.key}.jsonl": [(0, 3)], f"remote-5/w1-of-{one.key}": [(0, 4)]}
    of_other = {f"items-5-of-{other.key}/w1-5-of-{other.key}.jsonl": [(0, 5)]}
    ranges = all_items | of_one | of_other
    assert ranges_of_selection(ranges, None) == all_items
    assert ranges_of_selection(ranges, one) == of_one
    assert ranges_of_selection(ranges, other) == of_other
