"""Tiny real fits of Lightning, HF Trainer and Keras. Arguments: framework, output file, epochs, step to stop at (0: none).

The digest of the final weights goes to the output file. Stopping: the process sends itself SIGUSR2 at that step.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from ischeduler.estimators.memory.torch_private import mend_torchvision

mend_torchvision()  # PyPI's torchvision does not load beside a CPU build of torch, and the frameworks import it
which, out, epochs, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)


def strike(step: int) -> None:
    if stop and step == stop:
        os.kill(os.getpid(), signal.SIGUSR2)


def finish(arrays: list[Any]) -> None:
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    Path(out).write_text(digest)


def lightning() -> None:
    import lightning.pytorch as pl

    from ischeduler.training.callbacks_lightning import CheckpointCallback

    pl.seed_everything(3, verbose=False)

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(16, 1))

        def training_step(self, batch: Any, index: int) -> Any:
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.net(x), y)
            strike(self.global_step + 1)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            x, y = batch
            self.log("val_loss", torch.nn.functional.mse_loss(self.net(x), y))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)]

    x = torch.randn(64, 8)
    data = torch.utils.data.TensorDataset(x, x[:, :1] * x[:, 1:2])
    callback = CheckpointCallback()
    loader = callback.loader(torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
    model = Net()
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        accelerator="cpu",
    )
    trainer.fit(model, loader, torch.utils.data.DataLoader(data, batch_size=32), ckpt_path=callback.ckpt_path)
    assert trainer.global_step == epochs * 8, trainer.global_step
    finish([value.numpy() for value in model.state_dict().values()])


def hf() -> None:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

    from ischeduler.training.callbacks_hf import CheckpointCallback

    set_seed(3)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    model = BertForSequenceClassification(config)
    ids = torch.randint(0, 50, (64, 8), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "attention_mask": torch.ones(8, dtype=torch.long), "labels": int(row.sum()) % 2} for row in ids]

    class Strike(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            strike(state.global_step + 1)

    args = TrainingArguments(
        output_dir=f"{out}.hf", num_train_epochs=epochs, per_device_train_batch_size=8, save_strategy="no", report_to=[],
        logging_steps=1, use_cpu=True, disable_tqdm=True, learning_rate=1e-3,
    )  # fmt: skip
    callback = CheckpointCallback()
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[Strike(), callback])
    callback.train(trainer)
    assert trainer.state.global_step == epochs * 8
    finish([value.numpy() for value in model.state_dict().values()])


def keras_() -> None:
    import keras
    import numpy as np

    from ischeduler.training.callbacks_keras import CheckpointCallback

    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(16),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    y = x[:, :1] * x[:, 1:2]

    class Strike(keras.callbacks.Callback):
        steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            strike(int(self.model.optimizer.iterations))

    model.fit(x, y, epochs=epochs, batch_size=8, validation_data=(x, y), verbose=0, callbacks=[Strike(), CheckpointCallback()])
    assert int(model.optimizer.iterations) == epochs * 8
    finish([np.asarray(weight) for weight in model.get_weights()])


{"lightning": lightning, "hf": hf, "keras": keras_}[which]()
