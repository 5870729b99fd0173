"""What happens to a text before the pattern cuts it: special tokens are taken out, and the rest is normalised."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from dist_bpe import _core
from dist_bpe.errors import UsageError

DEFAULT_SPECIAL = "<|endoftext|>"


def special_token(value: Any) -> Any:
    """A special token from `TEXT` or `ROLE=TEXT`; GPT-2's own has the role eos unless said otherwise.

    Raises:
        UsageError: a word that is no role stands before the first `=`.
    """
    if not isinstance(value, str):
        return value
    role, equals, text = value.partition("=")
    if equals and role in ROLES:
        return SpecialToken(text, role)
    if equals and role.strip().replace("-", "_").isidentifier():
        near = role.strip().lower()
        meant = f"; write {near}={text} if that is meant" if near in ROLES else ""
        raise UsageError(
            f"the special token {value!r} begins with {role!r}, which is no role: the roles are {', '.join(ROLES)}"
            f"{meant}. For a token with the text {value!r} itself write other={value}."
        )
    return plain_special_token(value)


def plain_special_token(text: str) -> "SpecialToken":
    """The special token of a text as it stands, whatever is in it: GPT-2's own has the role eos, any other none."""
    return SpecialToken(text, "eos" if text == DEFAULT_SPECIAL else "other")


Role = Literal["bos", "eos", "pad", "unk", "other"]
"""What a special token is for: begin and end of text, padding of batches, unknown; `other` is for the user to say."""
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class SpecialToken:
    """A token that stands for itself: its text is cut out before the pattern runs, and no merge makes it.

    Attributes:
        text: the string in the text.
        role: what `transformers` is told it is; each role but "other" is for one token.
    """

    text: str
    role: Role = "other"


Normalization = Literal["NFC", "NFD", "NFKC", "NFKD"]
"""A Unicode normalisation form, which `_core.normalize` brings text into before a pattern cuts it."""


def normalization_form(name: str | None) -> Normalization | None:
    """The normalisation form of a name; None for None.

    Raises:
        UsageError: no such form.
    """
    if name is not None and name not in _core.NORMALIZATIONS:
        raise UsageError(f"unknown normalization {name!r}; the forms are: {', '.join(_core.NORMALIZATIONS)}.")
    return name  # type: ignore[return-value]  # one of the literals
