"""Properties of a log: names, defaults, limits (LOGS.md#G7)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import DigestType, Quorum
from ledgerlog_spark.protocol.log.claim import LEADER_CLAIM
from ledgerlog_spark.protocol.log.messages import Finished
from ledgerlog_spark.protocol.log.password import PASSWORD_CHECK
from ledgerlog_spark.protocol.log.state.codec import PROPERTIES_SIZE_BYTES_MAX
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.protocol.log.transaction import HeadTransaction, Plan, rewritten

NAME_LENGTH_MAX = 200
PROGRAMS_PROPERTIES = frozenset({LEADER_CLAIM, PASSWORD_CHECK})
"""Names of the stored properties that ledgerlog sets itself. Users cannot set these properties."""
JOB_APP_PREFIX = "job:"
"""Prefix of the names of producers that serve one job. Such producers are deleted some time after
the job."""

CHANGE_ENSEMBLE = "change_ensemble"
ON_BOOKIE_FAILURE = (CHANGE_ENSEMBLE, "roll_ledger")

_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


def option_of(name: str) -> str:
    """Return the option name of a field; for example, `rollBytes` for `roll_bytes`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@dataclass(frozen=True, slots=True)
class LogProperties:
    """Properties of a log: quorums of its ledgers, roll limits and retention times.

    Attributes:
        roll_bytes: Payload bytes after which a writer continues in a new ledger.
        retention_ms: Age after which rows may be dropped; -1 keeps all rows.
        retention_bytes: Size of the log above which its oldest rows may be dropped; -1 keeps all
            rows.
        version_retention_ms: Time for which a version can still be read after a newer version has
            replaced it.
        deleted_retention_ms: Time for which a ledger is kept after no version names it any more.
        staging_ttl_ms: Maximum time from the creation of a ledger to the commit of the job that
            created it.
        txn_retention_ms: Time for which a producer's record keeps runs that were replaced.
        on_bookie_failure: Reaction of a leader to a failed bookie: `change_ensemble` replaces it in
            the ledger, `roll_ledger` closes the ledger and continues in another ledger.
    """

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    digest_type: str = "CRC32C"
    roll_bytes: int = 1 << 30
    roll_ms: int = _HOUR_MS
    retention_ms: int = -1
    retention_bytes: int = -1
    version_retention_ms: int = 7 * _DAY_MS
    deleted_retention_ms: int = _DAY_MS
    staging_ttl_ms: int = 7 * _DAY_MS
    txn_retention_ms: int = 30 * _DAY_MS
    on_bookie_failure: str = CHANGE_ENSEMBLE

    def __post_init__(self) -> None:
        Quorum(self.ensemble_size, self.write_quorum, self.ack_quorum)
        for name, key in _OPTION_OF.items():
            value = getattr(self, name)
            keeps = name in {"retention_ms", "retention_bytes"} and value == -1
            wrong = None
            if name in _TEXTS and value not in _TEXTS[name]:
                wrong = f"one of {', '.join(_TEXTS[name])}, got {value!r}"
            elif name not in _TEXTS and value <= 0 and not keeps:
                wrong = f"greater than 0, got {value}"
            if wrong is not None:
                raise ConfigurationError(f"{key} must be {wrong}", key=key)

    @property
    def quorum(self) -> Quorum:
        """The quorum of new ledgers."""
        return Quorum(self.ensemble_size, self.write_quorum, self.ack_quorum)

    @property
    def changes_ensemble(self) -> bool:
        """Whether a leader may replace a failed bookie in the ensemble of its ledger."""
        return self.on_bookie_failure == CHANGE_ENSEMBLE

    @classmethod
    def from_mapping(cls, properties: Mapping[str, str]) -> LogProperties:
        """Return the properties that a head stores or a user sets, by option name.

        Missing properties get their defaults. The properties that ledgerlog sets itself are
        ignored. Raises `ConfigurationError` for an unknown name or an invalid value.
        """
        values: dict[str, int | str] = {}
        for option in sorted(set(properties) - PROGRAMS_PROPERTIES):
            name = _field_of(option)
            text = properties[option]
            values[name] = text if name in _TEXTS else _integer(option, text)
        return cls(**values)  # type: ignore[arg-type]  # checked above, by name

    def updated(self, properties: Mapping[str, str]) -> LogProperties:
        """Return the properties of a newer head; `self` if this release does not support them."""
        try:
            return LogProperties.from_mapping(properties)
        except ConfigurationError:
            return self

    def to_mapping(self) -> dict[str, str]:
        """Return the properties that a head stores, by option: all except default values."""
        defaults = LogProperties().to_full_mapping()
        mine = self.to_full_mapping()
        return {option: value for option, value in mine.items() if value != defaults[option]}

    def to_full_mapping(self) -> dict[str, str]:
        """Return all properties by option name, including properties with their defaults."""
        return {_OPTION_OF[field.name]: str(getattr(self, field.name)) for field in fields(self)}


_OPTION_OF = {field.name: option_of(field.name) for field in fields(LogProperties)}
_TEXTS = {"digest_type": DigestType.__members__, "on_bookie_failure": ON_BOOKIE_FAILURE}
_FIELD_OF = {option.lower(): name for name, option in _OPTION_OF.items()}
_FIXED = {"name", "kind", "content", "schema", "id"}


def _field_of(option: str) -> str:
    """Return the field of the property with this option name, in upper or lower case."""
    name = _FIELD_OF.get(option.lower())
    if name is not None:
        return name
    if option.lower() == PASSWORD_CHECK.lower():
        raise ConfigurationError(
            "the first write to a log sets its password: set the option passwordFile of that write",
            key=option,
        )
    if option.lower() == LEADER_CLAIM.lower():
        raise ConfigurationError(
            "a client claims a log when it opens the log as its leader: call "
            "open_log(name, lead=True)",
            key=option,
        )
    if option.lower() in _FIXED:
        raise ConfigurationError(
            f"the {option.lower()} of a log is fixed when the log is created: create another log",
            key=option,
        )
    near = difflib.get_close_matches(option, _OPTION_OF.values(), n=1)
    meant = (
        f"; did you mean {near[0]}?" if near else f": use one of {', '.join(_OPTION_OF.values())}"
    )
    raise ConfigurationError(f"a log has no property {option!r}{meant}", key=option, nearest=near)


def changed_properties(
    stored: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the stored properties after `changes`, by option name. None sets the default."""
    merged: dict[str, str | None] = dict(stored)
    for option, value in changes.items():
        merged[_OPTION_OF[_field_of(option)]] = value
    kept = {option: value for option, value in merged.items() if value is not None}
    properties = LogProperties.from_mapping(kept).to_mapping()
    size_bytes = sum(len(n.encode()) + len(v.encode()) + 4 for n, v in properties.items())
    if size_bytes > PROPERTIES_SIZE_BYTES_MAX:
        raise ConfigurationError(
            f"the properties of a log take {size_bytes} bytes, but at most "
            f"{PROPERTIES_SIZE_BYTES_MAX} are allowed",
            size_bytes=size_bytes,
        )
    return properties | {key: stored[key] for key in stored if key in PROGRAMS_PROPERTIES}


def user_properties(stored: Mapping[str, str]) -> dict[str, str]:
    """Return the stored properties that users set."""
    return {name: value for name, value in stored.items() if name not in PROGRAMS_PROPERTIES}


def new_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return the properties that the head of a new log stores."""
    return changed_properties({}, properties or {})


def check_has_properties(log: str, stored: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise an error unless the log has the properties in `wanted` (LOGS.md#H10).

    Other properties may have any value.
    """
    has = LogProperties.from_mapping(stored).to_full_mapping()
    for option, value in wanted.items():
        name = _field_of(option)
        key = _OPTION_OF[name]
        want = value if name in _TEXTS else str(_integer(option, value))
        if want != has[key]:
            raise ConfigurationError(
                f"log {log!r} already exists, with {key} {has[key]} instead of {want}: leave the "
                "property out, or change it with "
                f"`ledgerlog logs set {log} {key}={want}`",
                log=log,
                key=key,
                expected=want,
                got=has[key],
            )


def check_log_name(name: object) -> str:
    """Return the name if it is valid: 1 to 200 letters, digits, `.`, `_` and `-`."""
    if not isinstance(name, str):
        raise ConfigurationError(
            f"the name of a log must be a str such as 'flights', not {type(name).__name__}",
            log=name,
        )
    if not 1 <= len(name) <= NAME_LENGTH_MAX or name in {".", ".."}:
        raise ConfigurationError(
            f"{name!r} cannot be the name of a log: use 1 to {NAME_LENGTH_MAX} characters, but not "
            "`.` or `..`",
            log=name,
        )
    wrong = [character for character in name if character not in _NAME_CHARACTERS]
    if wrong:
        raise ConfigurationError(
            f"{name!r} cannot be the name of a log because of {wrong[0]!r}: use letters, digits, "
            "`.`, `_` and `-`",
            log=name,
        )
    return name


def _integer(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} must be a whole number, got {text!r}", key=option
        ) from None


class PropertiesMachine(HeadTransaction[dict[str, str]]):
    """Changes the properties of an existing log, and creates no version (LOGS.md#U9).

    Ends with `Finished(dict)`, the user's properties after the change. Fails with
    `ConfigurationError`, `LogNotFoundError`, `ConcurrentCommitError`, or the store's errors.
    """

    def __init__(self, log: str, changes: Mapping[str, str | None], *, token: str) -> None:
        super().__init__(log, token=token)
        self._changes = changes

    def _plan(self, head: LogHead) -> Plan[dict[str, str]]:
        yield from ()
        properties = changed_properties(head.properties, self._changes)
        if properties == head.properties:
            return Finished(user_properties(properties))
        changed = replace(head, properties=properties)
        return rewritten(changed, lambda made: user_properties(made.properties))
