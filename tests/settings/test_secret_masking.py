"""Secrets of a command line: masked by name, by shape and by place; what is none stays as it is."""

from __future__ import annotations

import time

import pytest

from greenlove_tracker.settings.secret_masking import mask_secrets

SECRET = "Zq9secretX"


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        ("t.py --api-key {} --lr 1e-3", "t.py --api-key MASKED --lr 1e-3"),
        ("t.py --hf_token={}", "t.py --hf_token=MASKED"),
        ("t.py -password {}", "t.py -password MASKED"),
        ("t.py --password '-{}!'", "t.py --password 'MASKED'"),
        ("t.py --db-password='{0} and {0}'", "t.py --db-password='MASKED'"),
        ("t.py --wandbApiKey {} --clientSecret={}", "t.py --wandbApiKey MASKED --clientSecret=MASKED"),
        ("t.py trainer.wandb.api_key={} +db.password={}", "t.py trainer.wandb.api_key=MASKED +db.password=MASKED"),
        ("t.py --set=secrets.apiKey={}", "t.py --set=secrets.apiKey=MASKED"),
        ("greenlove run -- env HF_TOKEN={} python t.py", "greenlove run -- env HF_TOKEN=MASKED python t.py"),
        ("docker run --env=HF_TOKEN={0} -eHF_TOKEN={0} i", "docker run --env=HF_TOKEN=MASKED -eHF_TOKEN=MASKED i"),
        ("sbatch --export=ALL,HF_TOKEN={} job.sh", "sbatch --export=ALL,HF_TOKEN=MASKED job.sh"),
        (
            "sh -c 'export WANDB_API_KEY={}; python t.py --password {} --lr 1'",
            "sh -c 'export WANDB_API_KEY=MASKED; python t.py --password MASKED --lr 1'",
        ),
        ("python -c 'login(token=\"{}\")'", "python -c 'login(token=\"MASKED\")'"),
        ('t.py --config \'{{"api_key": "{}", "lr": 1}}\'', 't.py --config \'{{"api_key": "MASKED", "lr": 1}}\''),
        ("curl -H 'Authorization: Bearer {}' -u me:{} x", "curl -H 'Authorization: Bearer MASKED' -u me:MASKED x"),
        ("t.py --db postgresql://me:{}@host/db", "t.py --db postgresql://me:MASKED@host/db"),
        ("t.py --db https://me:p@{}@host/x", "t.py --db https://me:MASKED@host/x"),
        ("t.py 'https://x.net/c?sp=r&sig={}'", "t.py 'https://x.net/c?sp=r&sig=MASKED'"),
        ("t.py --password '{} is never closed", "t.py --password 'MASKED is never closed"),
    ],
)
def test_a_secret_is_masked_by_its_name_or_its_place(command, masked):
    assert mask_secrets(command.format(SECRET, SECRET)) == masked.format()
    assert mask_secrets(masked.format()) == masked.format()


@pytest.mark.parametrize(
    "token",
    [
        "hf_abcdefghijklmnop",
        "hf_abc12345",
        "sk-abc123def456",
        "sk-proj-abcdef",
        "sk-ant-api03-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0abcdefghij",
        "glpat-abcdefgh12345",
        "xoxb-123456789012-abcdef",
        "AIzaSyA1234567890abcdefghijklmnopqrs",
        "nvapi-abcdefghijklmnop1234",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3",
    ],
)
@pytest.mark.parametrize("text", ["t.py {}", "t.py --x={} --lr 1", "t.py --x '{}'", "t.py x:{},y", "echo {} | t.py"])
def test_a_token_is_masked_by_its_shape(token, text):
    assert token not in mask_secrets(text.format(token)) and token not in mask_secrets(text.format(token))


@pytest.mark.parametrize(
    "command",
    [
        "train.py --max-tokens 512 --pad-token '<pad>' --tokenizer gpt2 --eos_token_id 2 --unk-token '[UNK]'",
        "train.py --num-key-value-heads 8 --key-dim 64 --sort-key loss --token 50256 --next-token-loss 1",
        "train.py --password-file /run/secret.txt --token-path x --use-auth-token --epochs 3 --use_auth_token True",
        "train.py --tokens-per-batch 4096 --passes 3 --monkey banana --secretary bob --pass-rate .5",
        "train.py s3://bucket/x@y git@github.com:u/r https://h/p@v1.2 user@host:/path http://host:8080/x",
        "train.py task-12345678 disk-abc12345 --revision 0123456789abcdef0123456789abcdef01234567",
        "pip install hf_transfer sk-learn-extra",
        "sh -c 'HF_TOKEN=$HF_TOKEN python x.py --password $PW'",
        "train.py 'a secret agent story' --prompt 'What is the password policy?' optimizer.lr=0.1",
        "greenlove run --country DE -- torchrun --nproc-per-node 4 --rdzv-endpoint host:29500 train.py --lr 3e-4",
    ],
)
def test_what_is_no_secret_stays_as_it_is(command):
    assert mask_secrets(command) == command


@pytest.mark.parametrize(
    "piece", ["a", "--a ", "-", "a.-", "a:", "a://", "hf_", "sk-", "a\"'", "key=", "password=", "eyJ", "a='\\'", " "]
)
def test_a_long_command_takes_no_time(piece):
    began_s = time.process_time()
    mask_secrets(piece * 20_000)
    assert time.process_time() - began_s < 20  # a pattern that goes back and forth takes minutes
