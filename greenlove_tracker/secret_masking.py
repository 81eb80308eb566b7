"""Masks passwords, tokens and keys in command lines and other texts, so that none gets into a log or a report.

A secret is recognised by the name that stands before it (``--api-key X``, ``HF_TOKEN=X``, ``"password": "X"``), by its
own shape (``hf_…``, ``sk-…``, ``AKIA…``, ``ghp_…``), or by its place in an address (``https://user:X@host``). What is
neither named nor shaped like one cannot be told from other words, and stays.
"""

from __future__ import annotations

import re
import shlex

MASK = "MASKED"  # a word that no shell needs to quote

# A key is a secret where the word before it says so: a model has keys of its own (``--num-key-value-heads``).
_OWNERS = (
    "api|access|secret|private|account|licen[cs]e|subscription|encrypt(?:ion)?|auth|master|service|storage|signing|"
    "shared|client|admin|session|app|deploy|ssh|gpg|write|ingest|wandb|hf|hub|huggingface|openai|anthropic|azure|aws|"
    "gcp|google|comet|neptune|clearml|mlflow|github|gitlab|cohere|mistral|groq|replicate|ngc|nvidia"
)
_SECRET = (
    "password|passwd|passphrase|passcode|pwd|(?<![a-z])pass|(?-i:Pass)|secrets?|credentials?|creds|bearer|authorization|cookies?|"
    f"jwt|dsn|webhook|token|(?:{_OWNERS})[-_.]?(?:keys?|auth|login|tokens)|(?:refresh|bot|user|oauth)[-_.]?tokens"
)
# Tokens of a tokenizer have names of the same kind (``--pad-token``), or are a number or a word in brackets.
_VOCABULARY = (
    "pad|padding|bos|eos|sos|unk|mask|cls|sep|begin|end|start|stop|image|img|video|audio|vision|text|special|"
    "additional|extra|prefix|suffix|prompt|separator|per|max|min|num|n|next|last|first|new|each|class|register|oov|"
    "blank|placeholder|trigger|think|decoder|forced|ignore|assistant|system|fim"
)
_RANDOM = r"(?=.*[0-9])(?=.*[A-Za-z])[\w+=-]{20,}"
_HARMLESS = rf"(?i:|true|false|yes|no|on|off|none|null|{MASK})|\$\{{?\w+\}}?|\$\(.*\)"  # a switch, a shell's variable
_SHELL_OPTIONS = frozenset(["-c", "-lc", "-ec", "-ic", "-xc", "--wrap", "eval"])  # a whole command in one argument
_DECIDING_CHARACTERS = 200  # of a value: a secret can be told by these

# Every pattern takes a time that grows with the text alone, not with its square: what repeats is bounded, or cannot
# begin in the middle of itself.
_EQUALS = r"""\\?["'\]]{0,3}\s{0,3}(?:==?|:(?!//))\s{0,3}(?:(?:Bearer|Basic|Token)\s{1,3})?\\?"""
_NAMES = tuple(
    re.compile(rf"(?<![\w.$+-])(?P<name>{dashes}[A-Za-z_][\w.-]*){between}")
    for dashes, between in (("[-+]{0,2}", _EQUALS), ("--?", r"\s{1,3}(?![-=:])"))
)
_VALUE = re.compile(r""""(?:[^"\\]|\\.){1,4000}"|'(?:[^'\\]|\\.){1,4000}'|["']?[^\s"';&|]+""", re.DOTALL)
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
        rf"({_SCHEME}[^/\s:@]*:)[^/\s]*(?=@)",  # an address with a password,
        rf"({_SCHEME})[^/\s:@]{{16,}}(?=@)",  # or with a token in place of the name
        r"(hooks\.slack\.com/services/)[\w/]+",
        r"([?&](?:sig|signature|key|code|X-Amz-Signature|X-Goog-Signature)=)[^&\s#'\"]+",
        r"(\b(?:[Bb]earer|BEARER)\s{1,3})[\w.~+/=-]{8,}",
        rf"((?<![A-Za-z0-9]))(?:{'|'.join(_TOKENS)})",
    )
)


def mask_command(text: str) -> str:
    """Return a shell's command line with its secrets masked; one without any as it is."""
    try:
        arguments = shlex.split(text)
    except ValueError:  # a quotation that is not closed
        return mask_secrets(text)
    masked = [_masked_argument(argument, before) for before, argument in zip(["", *arguments], arguments, strict=False)]
    return text if masked == arguments else shlex.join(masked)


def _masked_argument(argument: str, before: str) -> str:
    if before in _SHELL_OPTIONS:
        return mask_secrets(argument)
    is_option = re.fullmatch(r"--?[A-Za-z][\w.-]*(=.*)?|--", argument, re.DOTALL)  # the one before it is a switch
    if re.fullmatch(r"--?[A-Za-z][\w.:-]*|login", before) and not is_option:
        if _is_secret(before, argument):
            return MASK
        if before in ("-u", "--user", "--proxy-user") and ":" in argument:  # of curl: name:password
            return f"{argument.partition(':')[0]}:{MASK}"
    name, equals, value = argument.partition("=")
    if equals and re.fullmatch(r"[-+]{0,2}[A-Za-z_][\w.:-]*", name) and _is_secret(name, value):
        return f"{name}={MASK}"
    return mask_secrets(argument)


def mask_secrets(text: str) -> str:
    """Return any text with the secrets in it masked."""
    for pattern in _SHAPES:
        text = pattern.sub(rf"\1{MASK}", text)
    for names in _NAMES:
        text = _with_masked_values(text, names)
    return text


def _with_masked_values(text: str, names: re.Pattern[str]) -> str:
    """Mask the values behind secret names; what another name stands for may itself hold one: ``--env=TOKEN=X``."""
    parts, done, at = [], 0, 0
    while (name := names.search(text, at)) is not None:
        at = name.end()
        head = _VALUE.match(text, at, at + _DECIDING_CHARACTERS)
        if head is not None and _is_secret(name["name"], head[0].strip("\"'")):
            value = (_VALUE.match(text, at) or head)[0]
            quotes = [end if end in "\"'" else "" for end in (value[0], value[-1])]
            parts += [text[done:at], MASK.join(quotes)]
            done = at = at + len(value)
    return "".join([*parts, text[done:]])


def _is_secret(name: str, value: str) -> bool:
    """Return True where what goes by this name is a secret; a switch or a shell's variable is none."""
    if re.fullmatch(_HARMLESS, value):
        return False
    if re.search(r"tokens?$", name, re.IGNORECASE):
        is_of_vocabulary = re.search(rf"(?:^|[-_.])(?:{_VOCABULARY})[-_.]?tokens?$", name, re.IGNORECASE)
        if is_of_vocabulary or re.fullmatch(r"<?\|?\w*\|?>|[0-9]{1,6}", value):
            return False
    is_key = re.search("(?:keys?|auth|login)$", name, re.IGNORECASE) is not None
    return re.search(f"(?:{_SECRET})$", name, re.IGNORECASE) is not None or (
        is_key and re.fullmatch(_RANDOM, value) is not None
    )
