"""Masks passwords, tokens and keys in command lines and other texts, so that none gets into a log or a report.

A secret is recognised by the name that stands before it (``--api-key X``, ``HF_TOKEN=X``, ``"password": "X"``), by its
own shape (``hf_…``, ``sk-…``, ``AKIA…``, ``ghp_…``), or by its place in an address (``https://user:X@host``). What is
neither named nor shaped like one cannot be told from other words, and stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import cache

MASK = "MASKED"  # a word that no shell needs to quote


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_WORDS = _words(
    "password passwd passphrase passcode pwd pass secret secrets credential credentials creds bearer authorization "
    "cookie cookies jwt dsn webhook apikey"
)
_SECRET_ENDINGS = tuple(_words("password passwd secret token apikey accesskey secretkey privatekey authkey"))
# A key is a secret where the word before it says so: a model has keys of its own (``--num-key-value-heads``).
_KEY_OWNERS = _words(
    "api access secret private account license licence subscription encryption encrypt auth master service storage "
    "signing shared client admin session app deploy ssh gpg write ingest wandb hf hub huggingface openai anthropic "
    "azure aws gcp google comet neptune clearml mlflow github gitlab cohere mistral groq replicate ngc nvidia"
)
_TOKEN_OWNERS = _KEY_OWNERS | _words("refresh id bot user oauth security")
# Tokens of a tokenizer, which have names of the same kind (``--pad-token``).
_VOCABULARY_WORDS = _words(
    "pad padding bos eos sos unk mask cls sep begin end start stop image img video audio vision text special "
    "additional extra prefix suffix prompt separator per max min num n next last first new each class register oov "
    "blank placeholder trigger think decoder forced ignore assistant system fim"
)
_NO_SECRETS = frozenset(["", "true", "false", "yes", "no", "on", "off", "none", "null", MASK.lower()])
_SHELL_OPTIONS = frozenset(["-c", "-lc", "-ec", "-ic", "-xc", "--wrap", "eval"])  # a whole command in one argument
_USER_OPTIONS = frozenset(["-u", "--user", "--proxy-user"])  # of curl: name:password
_LEAST_RANDOM_CHARACTERS = 20
_DECIDING_CHARACTERS = 200  # of a value: a secret can be told by these


def mask_command(text: str) -> str:
    """Return a shell's command line with its secrets masked; one without any as it is."""
    try:
        arguments = shlex.split(text)
    except ValueError:  # a quotation that is not closed
        return mask_secrets(text)
    masked = mask_arguments(arguments)
    return text if masked == arguments else shlex.join(masked)


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with their secrets masked."""
    return [_masked_argument(argument, before) for before, argument in zip(["", *arguments], arguments, strict=False)]


def _masked_argument(argument: str, before: str) -> str:
    if before in _SHELL_OPTIONS:
        return mask_secrets(argument)
    if re.fullmatch(r"--?[A-Za-z][\w.:-]*|login", before) and not _is_option(argument):
        if _is_secret_name(before, argument) and not _is_harmless(argument):
            return MASK
        if before in _USER_OPTIONS and ":" in argument:
            return f"{argument.partition(':')[0]}:{MASK}"
    name, equals, value = argument.partition("=")
    if equals and re.fullmatch(r"[-+]{0,2}[A-Za-z_][\w.:-]*", name) and _is_secret_name(name, value):
        return argument if _is_harmless(value) else f"{name}={MASK}"
    return mask_secrets(argument)


def mask_secrets(text: str) -> str:
    """Return any text with the secrets in it masked."""
    for pattern in _shapes():
        text = pattern.sub(lambda found: f"{found['kept']}{MASK}", text)
    names, options, value = _named_values()
    return _mask_named(_mask_named(text, names, value), options, value)


def _mask_named(text: str, names: re.Pattern[str], value: re.Pattern[str]) -> str:
    """Mask the values behind secret names; what another name stands for may itself hold one: ``--env=TOKEN=X``."""
    parts, done, at = [], 0, 0
    while (name := names.search(text, at)) is not None:
        at = name.end()
        head = value.match(text, at, at + _DECIDING_CHARACTERS)
        if head is None or _is_harmless(plain := head[0].strip("\"'")) or not _is_secret_name(name["name"], plain):
            continue
        found = value.match(text, at) or head
        quotes = [end if end in "\"'" else "" for end in (found[0][0], found[0][-1])]
        parts += [text[done:at], MASK.join(quotes)]
        done = at = found.end()
    return "".join([*parts, text[done:]])


def _is_option(argument: str) -> bool:
    """Return True for what a parser of options takes for the next one: the option before it is a switch."""
    return re.fullmatch(r"--?[A-Za-z][\w.-]*(=.*)?|--", argument, re.DOTALL) is not None


def _is_harmless(value: str) -> bool:
    """Return True for a switch's value, and for a shell's variable, which is a name and no secret."""
    return value.lower() in _NO_SECRETS or re.fullmatch(r"\$\{?\w+\}?|\$\(.*\)", value) is not None


def _is_secret_name(name: str, value: str) -> bool:
    """Return True where what goes by this name is a secret."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words:
        return False
    last, owner = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("token", "tokens"):
        if owner in _VOCABULARY_WORDS or re.fullmatch(r"<?\|?\w*\|?>|[0-9]{1,6}", value):
            return False
        return last == "token" or owner in _TOKEN_OWNERS
    if last in ("key", "keys", "auth", "login"):
        return owner in _KEY_OWNERS or _looks_random(value)
    if last.endswith(_SECRET_ENDINGS):
        return not (last.endswith("token") and last.removesuffix("token") in _VOCABULARY_WORDS)
    return last in _SECRET_WORDS


def _looks_random(value: str) -> bool:
    """Return True for a long value of letters and digits in no order that a word or a path would have."""
    has_both = re.search(r"[0-9]", value) is not None and re.search(r"[A-Za-z]", value) is not None
    is_long = len(value) >= _LEAST_RANDOM_CHARACTERS
    return is_long and has_both and re.fullmatch(r"[\w+=-]+", value) is not None


# Every pattern takes a time that grows with the text alone, not with its square: what repeats is bounded, or cannot
# begin in the middle of itself.


@cache
def _named_values() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a name and ``=`` or ``:``, of an option with its value behind it, and of a value."""
    name = r"(?<![\w.$+-])(?P<name>{}[A-Za-z_][\w.-]*)"
    equals = r"""\\?["'\]]{0,3}\s{0,3}(?:==?|:(?!//))\s{0,3}(?:(?:Bearer|Basic|Token)\s{1,3})?\\?"""
    value = r""""(?:[^"\\]|\\.){1,4000}"|'(?:[^'\\]|\\.){1,4000}'|["']?[^\s"';&|]+"""
    return (
        re.compile(name.format("[-+]{0,2}") + equals),
        re.compile(name.format("--?") + r"\s{1,3}(?![-=:])"),
        re.compile(value, re.DOTALL),
    )


@cache
def _shapes() -> Sequence[re.Pattern[str]]:
    """Return the patterns of secrets that tell themselves; what ``kept`` matches stays."""
    with_digit = r"(?=[\w-]{0,80}[0-9])"
    tokens = (
        r"hf_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]{0,16}[0-9])[A-Za-z0-9]{8,})",  # Hugging Face
        rf"sk[-_]{with_digit}[\w-]{{8,}}|sk-(?:ant|proj)-[\w-]{{6,}}|[pr]k_(?:live|test)_\w{{8,}}",  # OpenAI, Stripe
        r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{8,}",  # AWS
        r"gh[opsur]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|gl(?:pat|dt|ptt)-[\w-]{8,}",  # GitHub, GitLab
        r"xox[abeprs]-[\w-]{8,}|xapp-[\w-]{8,}",  # Slack
        r"AIza[\w-]{20,}|ya29\.[\w-]{10,}|GOCSPX-[\w-]{10,}",  # Google
        rf"(?:nvapi|pypi|npm|dop_v1|r8|gsk|pplx|wandb_v[0-9]|dapi|SG|lsv2_pt)[-_.]{with_digit}[\w.-]{{16,}}",
        r"eyJ[\w-]{8,2000}\.[\w-]{8,}(?:\.[\w-]*)?",  # JSON web tokens
    )
    scheme = r"(?<![\w+.-])[A-Za-z][\w+.-]*://"
    return tuple(
        re.compile(pattern, re.DOTALL)
        for pattern in (
            r"(?P<kept>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(?=-----END|\Z)",
            rf"(?P<kept>{scheme}[^/\s:@]*:)[^/\s]*(?=@)",  # an address with a password,
            rf"(?P<kept>{scheme})[^/\s:@]{{16,}}(?=@)",  # or with a token in place of the name
            r"(?P<kept>hooks\.slack\.com/services/)[\w/]+",
            r"(?P<kept>[?&](?:sig|signature|key|code|X-Amz-Signature|X-Goog-Signature)=)[^&\s#'\"]+",
            r"(?P<kept>\b(?:[Bb]earer|BEARER)\s{1,3})[\w.~+/=-]{8,}",
            *(rf"(?P<kept>(?<![A-Za-z0-9]))(?:{token})" for token in tokens),
        )
    )
