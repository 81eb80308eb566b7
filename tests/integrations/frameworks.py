"""A small training in each framework's own loop: the same calls for all, on a clock that is moved by hand.

Its six steps take ``STEP_S`` each; it has two epochs, or six rounds, and can break at one step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import pytest
from fakes import FakeClock, tick

os.environ.setdefault("KERAS_BACKEND", "torch")  # before the first import of Keras
os.environ["HF_HUB_OFFLINE"] = "1"

from greenlove_tracker.tracker.session import open_run

STEP_S = 2.0


class Framework:
    """One of them.

    Args:
        clock: that each step moves.

    Attributes:
        name: as warnings have it.
        needs: packages.
        planned: what its run says of its length.
        counts: steps, and whether it is complete, of each epoch of a training.
        knows_length: its callback is told how many rounds there are.
        broken_is: the status of a run whose training raised, once the next one has begun.
        steps_known: of an epoch, in the last step, so that forecasts begin before it has ended.
        breaks_at: the step, from 1, in which a training raises; 0: none does.
    """

    name = ""
    needs: tuple[str, ...] = ()
    planned: ClassVar = {"epochs_planned": "2", "total_steps_planned": ""}
    counts: ClassVar = [(3, True), (3, True)]
    knows_length = True
    broken_is = "superseded"  # no callback is told that a training raised

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.breaks_at, self.n_steps = clock, 0, 0
        self.steps_known: float | None = None

    def on_step(self, *_: Any) -> None:
        self.clock.pass_s(STEP_S)
        tick()  # as the tracker's own thread does
        run = open_run()
        self.steps_known = None if run is None or run.state.plan is None else run.state.plan.steps_per_epoch
        self.n_steps += 1
        if self.n_steps == self.breaks_at:
            raise RuntimeError("out of luck")

    @property
    def callback(self) -> Callable[..., Any]:
        """The class of the framework's callback."""
        module = import_module(f"greenlove_tracker.integrations.{type(self).__name__.lower()}")
        return getattr(module, "GreenloveCallbacks" if self.name == "LightGBM" else "GreenloveCallback")

    def train(self, *callbacks: Any, times: int = 1) -> Any:
        """Train a new model, ``times`` as long, and return its weights."""
        raise NotImplementedError


class HuggingFace(Framework):
    name = "Hugging Face"
    needs = ("torch", "transformers", "accelerate")

    def train(self, *callbacks: Any, times: int = 1) -> Any:
        import torch
        import transformers

        torch.manual_seed(0)
        config = transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2)
        model = transformers.GPT2LMHeadModel(config)
        model.register_forward_hook(self.on_step)
        data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (12, 8))]
        quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
        arguments = transformers.TrainingArguments(
            "out", num_train_epochs=2 * times, per_device_train_batch_size=4, logging_strategy="no", **quiet
        )
        transformers.Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks)).train()
        return [weight.tolist() for weight in model.parameters()]


class Lightning(Framework):
    name = "Lightning"
    needs = ("torch", "lightning")
    broken_is = "failed"

    def train(self, *callbacks: Any, times: int = 1) -> Any:
        import torch
        from lightning import pytorch as lightning

        on_step = self.on_step

        class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(4, 1)

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                on_step()
                return self.net(batch).square().mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.01)

        torch.manual_seed(0)
        module, loader = Module(), torch.utils.data.DataLoader(torch.randn(12, 4), 4)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        quiet |= {"enable_checkpointing": False, "accelerator": "cpu"}
        lightning.Trainer(callbacks=list(callbacks), max_epochs=2 * times, **quiet).fit(module, loader)
        return [weight.tolist() for weight in module.parameters()]


class Keras(Framework):
    name = "Keras"
    needs = ("keras", "torch")

    def train(self, *callbacks: Any, times: int = 1) -> Any:
        import keras
        import numpy

        if keras.backend.backend() != "torch":
            pytest.skip("Keras runs on another backend in this process")
        on_step = self.on_step

        @keras.saving.register_keras_serializable()  # a callback is copied with its model
        class Model(keras.Model):  # type: ignore[misc, name-defined]
            def __init__(self, **more: Any) -> None:
                super().__init__(**more)
                self.layer = keras.layers.Dense(1)

            def call(self, x: Any) -> Any:
                return self.layer(x)

            def train_step(self, data: Any) -> Any:
                on_step()
                return super().train_step(data)

        keras.utils.set_random_seed(0)
        model, x = Model(), numpy.random.default_rng(0).random((12, 4))
        model.compile("sgd", "mse")
        model.fit(x, x.sum(axis=1), batch_size=4, epochs=2 * times, verbose=0, callbacks=list(callbacks))
        return [weight.tolist() for weight in model.get_weights()]


class Boosting(Framework):
    planned: ClassVar = {"epochs_planned": "", "total_steps_planned": "6"}
    counts: ClassVar = [(6, True)]

    @property
    def objective(self) -> Callable[[Any, Any], Any]:
        def squared_error(predicted: Any, target: Any) -> Any:  # no method, of which LightGBM would copy the object
            self.on_step()
            return predicted - target.get_label(), predicted * 0 + 1.0

        return squared_error


class XGBoost(Boosting):
    name = "XGBoost"
    needs = ("xgboost",)
    knows_length = False

    def train(self, *callbacks: Any, times: int = 1) -> Any:
        import xgboost

        from tests.integrations.boosting import X, Y

        parameters = {"nthread": 1, "max_depth": 2, "base_score": 0.5}
        matrix, more = xgboost.DMatrix(X, Y), {"obj": self.objective, "callbacks": list(callbacks)}
        return xgboost.train(parameters, matrix, 6 * times, **more).get_dump()


class LightGBM(Boosting):
    name = "LightGBM"
    needs = ("lightgbm",)

    def train(self, *callbacks: Any, times: int = 1) -> Any:
        import lightgbm

        from tests.integrations.boosting import X, Y

        parameters = {"num_threads": 1, "num_leaves": 4, "verbose": -1, "objective": self.objective}
        flat = [each for callback in callbacks for each in callback]
        return lightgbm.train(parameters, lightgbm.Dataset(X, Y), 6 * times, callbacks=flat).model_to_string()


FRAMEWORKS = (HuggingFace, Lightning, Keras, XGBoost, LightGBM)
