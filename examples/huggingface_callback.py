"""Track a Hugging Face ``Trainer`` with one callback: its epochs, steps, samples, loss and evaluations.

``python examples/huggingface_callback.py`` trains a tiny, randomly initialised GPT-2 on made-up tokens; nothing is
downloaded. It needs ``pip install "greenlove-tracker[huggingface]"``.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from greenlove_tracker.integrations.huggingface import GreenloveCallback

torch.manual_seed(0)
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None)
model = GPT2LMHeadModel(config)

# Each sentence counts upwards from a random token, so that there is something to learn.
starts = torch.randint(0, 48, (256, 1))
data = [{"input_ids": row, "labels": row} for row in starts + torch.arange(16)]

arguments = TrainingArguments(
    "huggingface-checkpoints",
    num_train_epochs=4,
    per_device_train_batch_size=16,
    learning_rate=3e-3,
    logging_strategy="epoch",
    eval_strategy="epoch",
    save_strategy="no",
    dataloader_pin_memory=False,
    disable_tqdm=True,
    report_to="none",  # or transformers 4 starts a second CodeCarbon
)
trainer = Trainer(
    model,
    arguments,
    train_dataset=data[:224],
    eval_dataset=data[224:],
    callbacks=[GreenloveCallback(country="DE", project="tiny-gpt2")],
)
trainer.train()
