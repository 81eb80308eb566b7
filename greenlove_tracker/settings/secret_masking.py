"""Masks passwords, tokens and keys in command lines and other texts, so that none gets into a log or a report.

A secret is recognised by the name that stands before it (``--api-key X``, ``HF_TOKEN=X``, ``"password": "X"``), by its
own shape (``hf_…``, ``sk-…``, ``AKIA…``, ``ghp_…``), or by its place in an address (``https://user:X@host``). What is
neither named nor shaped like one cannot be told from other words, and stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

MASK = "MASKED"  # a word that no shell needs to quote

# A key is a secret where the word before it says so: a model has keys of its own (``--num-key-value-heads``).
_OWNERS = (
    "api|access|secret|private|account|licen[cs]e|subscription|encrypt(?:ion)?|auth|master|service|storage|signing|"
    "shared|client|admin|session|app|deploy|ssh|gpg|write|ingest|wandb|hf|hub|huggingface|openai|anthropic|azure|aws|"
    "gcp|google|comet|neptune|clearml|mlflow|github|gitlab|cohere|mistral|groq|replicate|ngc|nvidia|kaggle|slack|discord|"
    "telegram|stripe|twilio|sendgrid|datadog|sentry|roboflow|together|gemini|pinecone|langchain|runpod|modal|crusoe"
)
_SECRET = (
    "password|passwd|passphrase|passcode|pwd|(?<![a-zA-Z])pass|secrets?|credentials?|creds|bearer|authorization|"
    f"cookies?|jwt|dsn|webhook|token|(?:{_OWNERS})[-_.]?(?:keys?|auth|login|tokens)|(?:refresh|bot|user|oauth)[-_.]?tokens"
)
# Tokens of a tokenizer have names of the same kind (``--pad-token``), or are a number or a word in brackets.
_VOCABULARY = (
    "pad|padding|bos|eos|sos|unk|mask|cls|sep|begin|end|start|stop|image|img|video|audio|vision|text|special|"
    "additional|extra|prefix|suffix|prompt|separator|per|max|min|num|n|next|last|first|new|each|class|register|oov|"
    "blank|placeholder|trigger|think|decoder|forced|ignore|assistant|system|fim"
)
_IS_OF_VOCABULARY = re.compile(rf"(?:^|[-_.])(?:{_VOCABULARY})[-_.]?tokens?$", re.IGNORECASE)
# A switch, a shell's variable, or a word of a vocabulary.
_HARMLESS = re.compile(
    rf"|true|false|yes|no|on|off|none|null|{MASK}|\$\{{?\w+\}}?|\$\(.*\)|<?\|?\w*\|?>|[0-9]{{1,6}}", re.IGNORECASE
)

# Every pattern takes a time that grows with the text alone, not with its square: what repeats is bounded, or cannot
# begin in the middle of itself.
_EQUALS = r"""\\?["'\]]{0,3}\s{0,3}(?:==?|:(?!//))\s{0,3}(?:(?:Bearer|Basic|Token)\s{1,3})?\\?"""
_VALUE = r""""(?:[^"\\]|\\.){1,4000}"|'(?:[^'\\]|\\.){1,4000}'|["']?[^\s"';&|]+"""
_NAMES = tuple(
    re.compile(rf"(?<![\w.-])(?P<name>{name}(?:{_SECRET}))(?P<between>{between})(?P<value>{_VALUE})", re.I | re.DOTALL)
    for name, between in ((r"[\w.-]{0,80}?", _EQUALS), (r"--?[\w.-]{0,80}?", r"\s{1,3}(?![-=:])"))
)
_WITH_DIGIT = r"(?=[\w-]{0,80}[0-9])"
_SCHEME = r"(?<![\w+.-])[A-Za-z][\w+.-]*://"
_TOKENS = (
    r"hf_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]{0,16}[0-9])[A-Za-z0-9]{8,})",  # Hugging Face
    rf"sk[-_]{_WITH_DIGIT}[\w-]{{8,}}|sk-(?:ant|proj)-[\w-]{{6,}}|[pr]k_(?:live|test)_\w{{8,}}",  # OpenAI, Stripe
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{8,}",  # AWS
    r"gh[opsur]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|gl(?:pat|dt|ptt)-[\w-]{8,}",  # GitHub, GitLab
    r"xox[abeprs]-[\w-]{8,}|xapp-[\w-]{8,}",  # Slack
    r"AIza[\w-]{20,}|ya29\.[\w-]{10,}|GOCSPX-[\w-]{10,}",  # Google
    rf"(?:nvapi|pypi|npm|dop_v1|r8|gsk|pplx|wandb_v[0-9]|dapi|SG|lsv2_pt)[-_.]{_WITH_DIGIT}[\w.-]{{16,}}",
    r"eyJ[\w-]{8,2000}\.[\w-]{8,}(?:\.[\w-]*)?",  # JSON web tokens
)
_SHAPES = tuple(  # what stands in the first group stays
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(?=-----END|\Z)",
        rf"({_SCHEME}[^/\s:@]*:)(?!\d+/)[^\s]{{0,4000}}(?=@)",  # an address with a password,
        rf"({_SCHEME})[^/\s:@]{{16,}}(?=@)",  # or with a token in place of the name
        rf"({_SCHEME}[^\s'\"]{{0,200}}?hooks?[^\s'\"/]{{0,100}}/)[^\s'\"]+",  # a webhook
        r"(/bot)\d+:[\w-]+",  # of Telegram
        r"([?&](?:sig|signature|key|code|auth|t|X-Amz-Signature|X-Goog-Signature)=)[^&\s#'\"]+",
        r"(\b(?:[Bb]earer|BEARER)\s{1,3})[\w.~+/=-]{8,}",
        r"(\blogin\s{1,3})[\w-]{20,}",  # wandb login
        r"(\s(?:-u|--user|--proxy-user|--auth)\s{1,3}[\w.@-]{1,80}:)[^\s'\"]+",  # of curl
        rf"((?<![A-Za-z0-9]))(?:{'|'.join(_TOKENS)})",
    )
)


_SECRET_NAME = re.compile(rf"[\w.-]*?(?:{_SECRET}|auth)", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"[A-Z0-9_]*_KEY")
_USERS = ("-u", "--user", "--proxy-user")  # a name, or name:password


def masked_command(words: Iterable[str]) -> str:
    """Return a command line with the secrets in it masked, each argument as a whole, before they are quoted."""
    shown = []
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        is_value = before == "-p" or (before in _USERS and ":" in word) or _names_secret(before)
        if is_value and before.startswith("-") and not word.startswith("-"):
            shown.append(_masked_value(word))
        elif equals and _names_secret(name):
            shown.append(f"{name}={_masked_value(value)}")
        else:
            shown.append(_masked_text(word))
        before = word
    return shlex.join(shown)


def _masked_text(word: str) -> str:
    """Return an argument that is no secret as a whole; it may be a command line itself, as for ``bash -c``."""
    try:
        inner = masked_command(shlex.split(word)) if " " in word else ""
    except ValueError:  # a quote that nothing closes
        inner = ""
    if MASK in inner:
        return inner
    return mask_secrets(word)


def _names_secret(name: str) -> bool:
    bare = name.lstrip("-")
    if _IS_OF_VOCABULARY.search(bare):
        return False
    return bool(_SECRET_NAME.fullmatch(bare) or _SECRET_VARIABLE.fullmatch(bare))


def _masked_value(value: str) -> str:
    return value if _HARMLESS.fullmatch(value) else MASK


def mask_secrets(text: str) -> str:
    """Return a text, such as a command line, with the secrets in it masked."""
    for shape in _SHAPES:
        text = shape.sub(rf"\1{MASK}", text)
    for named in _NAMES:
        text = named.sub(_masked, text)
    return text


def _masked(found: re.Match[str]) -> str:
    """Return a name with its value masked, in the quotes that it has; a switch or a shell's variable is no secret."""
    value = found["value"]
    bare = value.strip("\"'")
    if _IS_OF_VOCABULARY.search(found["name"]) or _HARMLESS.fullmatch(bare):
        return found[0]
    return f"{found['name']}{found['between']}{value.replace(bare, MASK)}"
