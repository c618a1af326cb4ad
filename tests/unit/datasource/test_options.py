"""Options of format("ledger") (ledgerlog_spark.datasource.options: values, table)."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.datasource.options.table import NEAREST, Use
from ledgerlog_spark.datasource.options.values import TABLE, SourceOptions, table_options
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.properties import LogProperties


def read(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "flights", **options}).for_read()


def stream(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "flights", **options}).for_stream()


def write(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "flights", **options}).for_write()


def test_what_options_are_when_they_are_not_given() -> None:
    options = read()
    assert options.log_names == ("flights",)
    assert options.starting_offsets == "earliest"
    assert options.ending_offsets == "latest"
    assert options.max_bytes_per_partition == 128 * 1024 * 1024
    assert options.fail_on_data_loss
    assert write().create_if_missing
    assert write().compression == "zstd"
    assert write().target_entry_bytes == 1024 * 1024


def test_keys_arrive_in_any_case() -> None:
    assert read(MAXBYTESPERPARTITION="64m").max_bytes_per_partition == 64 << 20
    assert read(failondataloss="FALSE").fail_on_data_loss is False


def test_names_of_the_table_differ_in_more_than_case_and_say_what_they_mean() -> None:
    assert len({option.name.lower() for option in TABLE}) == len(TABLE)
    assert all(option.meaning and isinstance(option.use, Use) for option in TABLE)


def test_every_hint_names_an_option_that_exists_and_is_none_itself() -> None:
    names = {option.name for option in TABLE}
    assert set(NEAREST.values()) <= names
    assert not set(NEAREST) & {name.lower() for name in names}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("subscribe", "log"),
        ("kafka.bootstrap.servers", "metadataServiceUri"),
        ("subscribePattern", "logPattern"),
        ("startingOfsets", "startingOffsets"),
        ("colums", "columns"),
        ("metadataservice", "metadataServiceUri"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**{key: "x"})
    assert f'unknown option "{key.lower()}". Did you mean "{nearest}"?' in str(caught.value)
    assert caught.value.nearest == nearest


def test_an_option_like_no_other_is_an_error_that_lists_all() -> None:
    with pytest.raises(ConfigurationError, match="Options are: log, logs, logPattern") as caught:
        read(zzzzqqqq="1")
    assert caught.value.nearest is None


def test_strict_options_false_makes_unknown_ones_a_warning() -> None:
    with pytest.warns(UserWarning, match='unknown option "subscribe"'):
        assert read(subscribe="x", strictOptions="false").log == "flights"


def test_sparks_own_keys_pass() -> None:
    assert read(checkpointlocation="somewhere").log == "flights"


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("minPartitions", "0", "a whole number from 1"),
        ("minPartitions", "many", "a whole number from 1"),
        ("maxBytesPerPartition", "1.5g", "such as 1048576, 64m or 1g"),
        ("failOnDataLoss", "yes", "true or false"),
        ("versionAsOf", "-1", "a whole number from 0"),
        ("logs", "a,,b", "a log's name"),
        ("engine", "rust", "one of auto, jvm, python"),
        ("columns", "a,,b", "names separated by commas"),
        ("compression", "gzip", "one of zstd, lz4, none"),
        ("digestType", "md5", "one of CRC32C, CRC32, HMAC, DUMMY"),
        ("logPattern", "(", "a regular expression"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("maxTriggerDelay", "soon", "a duration such as"),
        ("onOverwrite", "ignore", "one of fail, continue"),
        ("maxBytesPerTrigger", "0", "bytes from 1"),
        ("targetEntryBytes", "4095", "bytes from 4096 to 4194304"),
        ("targetEntryBytes", "4194305", "bytes from 4096 to 4194304"),
        ("startingOffsets", "first", "must be earliest, latest, an offset"),
        ("startingOffsets", '{"flights": -3}', "must be earliest, latest, an offset"),
        ("endingOffsets", '{"flights": true}', "must be earliest, latest, an offset"),
    ],
)
def test_a_wrong_value_names_the_option_and_what_would_be_right(
    option: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        read(**{option: value})
    assert str(caught.value).startswith(f'option "{option}" must be ')
    assert str(caught.value).count("must be") == 1
    assert caught.value.option == option


@pytest.mark.parametrize(("value", "size"), [("4k", 4096), ("4m", 4 << 20)])
def test_entries_of_a_write_may_have_from_4_kib_to_4_mib(value: str, size: int) -> None:
    assert write(targetEntryBytes=value).target_entry_bytes == size


def test_a_stream_begins_at_the_end_and_takes_a_gibibyte_at_a_time() -> None:
    options = stream()
    assert options.starting_offsets == "latest"
    assert stream(startingOffsets="earliest").starting_offsets == "earliest"
    assert options.max_bytes_per_trigger == 1 << 30
    assert options.max_rows_per_trigger is None
    assert options.max_trigger_delay == 15 * 60 * 1000
    assert options.on_overwrite == "fail"


def test_kafkas_names_of_the_limits_are_taken() -> None:
    options = stream(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5", maxTriggerDelay="2s")
    assert (options.max_rows_per_trigger, options.min_rows_per_trigger) == (10, 5)
    assert options.max_trigger_delay == 2_000
    with pytest.raises(ConfigurationError, match="are the same: set only one"):
        stream(maxOffsetsPerTrigger="10", maxRowsPerTrigger="10")


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": "latest"},
        {"endingTimestamp": "-1h"},
        {"versionAsOf": "1"},
        {"timestampAsOf": "-1h"},
        {"startingOffsets": "7", "startingTimestamp": "-1h"},
    ],
)
def test_what_only_batch_reads_do_and_contradictions_are_refused_for_a_stream(
    options: dict[str, str],
) -> None:
    with pytest.raises(ConfigurationError):
        stream(**options)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("latest", "latest"),
        ("EARLIEST", "earliest"),
        ("1000", {"*": 1000}),
        ('{"flights": 7}', {"flights": 7}),
        ('{"flights": -2, "ships": -1}', {"flights": -2, "ships": -1}),
        ('{"flights": {"id": "x", "offset": 7}}', {"flights": 7}),
    ],
)
def test_offsets_are_words_numbers_or_json(value: str, expected: Any) -> None:
    assert read(startingOffsets=value).starting_offsets == expected


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"path": "a"}, ("a",)),
        ({"log": "a"}, ("a",)),
        ({"path": "a", "log": "a"}, ("a",)),
        ({"logs": "a, b,a"}, ("a", "b")),
        ({"path": "a,b"}, ("a", "b")),
        ({"paths": '["a","b"]'}, ("a", "b")),
        ({"paths": '["a"]'}, ("a",)),
    ],
)
def test_logs_are_named_by_path_or_option(options: dict[str, str], names: tuple[str, ...]) -> None:
    assert SourceOptions.parse(options).for_read().log_names == names


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"log": "a", "logs": "b"},
        {"log": "a", "ledgerId": "7"},
        {"path": "a", "log": "b"},
        {"logs": "a,b", "versionAsOf": "1"},
        {"log": "a", "versionAsOf": "1", "timestampAsOf": "-1h"},
        {"paths": "{}"},
        {"log": "a", "engine": "jvm"},
    ],
)
def test_contradicting_options_are_an_error(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        SourceOptions.parse(options).for_read()


def test_a_write_names_one_log() -> None:
    with pytest.raises(ConfigurationError, match=r'save\("name"\)'):
        SourceOptions.parse({"logs": "a,b"}).for_write()


def test_transaction_options_come_together() -> None:
    assert write(txnAppId="job", txnVersion="3").txn_version == 3
    with pytest.raises(ConfigurationError, match='"txnAppId" and "txnVersion"'):
        write(txnAppId="job")


def test_options_of_writes_do_not_disturb_reads_because_views_have_both() -> None:
    assert read(compression="lz4", minPartitions="2").min_partitions == 2
    assert write(columns="a", mergeSchema="true").merge_schema


def test_every_log_property_that_a_write_can_set_is_known_to_the_log() -> None:
    given = {"ensembleSize", "writeQuorum", "ackQuorum", "digestType", "retentionMs",
             "retentionBytes", "versionRetentionMs", "deletedRetentionMs", "stagingTtlMs",
             "txnRetentionMs"}  # fmt: skip
    assert given <= {option.name for option in TABLE}
    LogProperties.from_mapping(dict.fromkeys(given - {"digestType"}, "3"))


def test_what_sparks_catalog_adds_to_a_tables_options_passes() -> None:
    added = {"owner": "me", "provider": "ledger", "option.log": "flights", "location": "file:/x"}
    assert SourceOptions.parse({"log": "flights", **added}).for_read().log == "flights"


@pytest.mark.parametrize("key", ["comment", "location", "owner", "option.log"])
def test_what_the_catalog_adds_is_unknown_where_no_table_is_made(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f'unknown option "{key}"'):
        write(**{key: "x"})
    assert table_options({"path": "flights", key: "x"}) == {}


def test_a_table_keeps_its_own_options_and_none_of_the_catalogs() -> None:
    given = {"Log": "flights", "owner": "me", "option.log": "flights", "minPartitions": "2",
             "provider": "ledger"}  # fmt: skip
    assert table_options(given) == {"log": "flights", "minpartitions": "2"}


def test_what_load_reads_does_not_carry_its_options_along() -> None:
    assert table_options({"path": "flights", "minPartitions": "2"}) == {}


@pytest.mark.parametrize(
    ("named", "offsets"),
    [
        ({"path": "flights"}, '{"flihgts": 100}'),
        ({"logs": "flights,trains"}, '{"flights": 0, "train": 5}'),
        ({"logPattern": "f.*"}, '{"trains": 5}'),
    ],
)
def test_offsets_of_a_log_that_the_stream_does_not_read_are_refused(
    named: dict[str, str], offsets: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"startingOffsets.* names .*, but the stream"):
        SourceOptions.parse({**named, "startingOffsets": offsets}).for_stream()


def test_offsets_of_a_log_that_may_come_later_are_taken() -> None:
    options = {"logPattern": "f.*", "startingOffsets": '{"flights": 5, "ferries": -2}'}
    assert SourceOptions.parse(options).for_stream().starting_offsets == {
        "flights": 5, "ferries": -2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "is_wrong"),
    [
        ("2026-01-02", "2026-01-01", True),
        ("-10m", "-20m", True),
        ("-20m", "-10m", False),
        ("-10m", "2026-01-01", False),
        ("5", "5", False),
    ],
)
def test_times_that_end_before_they_begin_are_an_error(
    start: str, end: str, is_wrong: bool
) -> None:
    given = {"log": "flights", "startingTimestamp": start, "endingTimestamp": end}
    if not is_wrong:
        assert SourceOptions.parse(given).for_read().starting_timestamp is not None
        return
    with pytest.raises(ConfigurationError, match='"endingTimestamp" is before') as caught:
        SourceOptions.parse(given).for_read()
    assert caught.value.option == "endingTimestamp"


def test_an_expected_version_is_for_one_batch_write() -> None:
    assert write(expectedVersion="3", expectedLogId="ab").expected_version == 3
    assert write().expected_version is None
    for value in ("-1", "x"):
        with pytest.raises(ConfigurationError, match=r"expectedVersion.*whole number from 0"):
            write(expectedVersion=value)
    for name, value in (("expectedVersion", "3"), ("expectedLogId", "ab")):
        options = SourceOptions.parse({"path": "flights", name: value})
        with pytest.raises(ConfigurationError, match=f'"{name}" is for one write'):
            options.for_stream_write()


def test_an_expected_version_and_any_version_contradict_each_other() -> None:
    options = write(expectedVersion="3", overwriteIfChanged="true")
    with pytest.raises(ConfigurationError, match="set only one"):
        options.check_mode(overwrite=True)
    write(expectedVersion="3").check_mode(overwrite=False)


@pytest.mark.parametrize(
    ("overwrite", "other"),
    [
        (True, {}),
        (False, {"createIfMissing": "false"}),
        (False, {"expectedVersion": "1"}),
        (False, {"expectedLogId": "ab"}),
    ],
)
def test_a_write_that_creates_its_log_needs_no_log(overwrite: bool, other: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"errorIfExists.*is for a log that exists"):
        write(errorIfExists="true", **other).check_mode(overwrite=overwrite)
    write(errorIfExists="true").check_mode(overwrite=False)
    options = SourceOptions.parse({"path": "flights", "errorIfExists": "true"})
    with pytest.raises(ConfigurationError, match='"errorIfExists" is for one write'):
        options.for_stream_write()


def test_which_writes_create_a_missing_log_and_accept_an_existing_one() -> None:
    assert write().may_create
    for other in (
        {"createIfMissing": "false"},
        {"errorIfExists": "true"},
        {"expectedVersion": "1"},
        {"expectedLogId": "ab"},
    ):
        assert not write(**other).may_create
