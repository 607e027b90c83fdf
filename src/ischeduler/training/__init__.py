"""What lives inside the user's job: progress, checkpoints, resuming, and the `isched exec` wrapper.

Standard library only, because it runs in other people's environments; a framework is imported only inside its own
callback module (`callbacks_torch`, `callbacks_lightning`, `callbacks_hf`, `callbacks_keras`).
"""

from ischeduler.training.session import TrainingSession, checkpointing

__all__ = ["TrainingSession", "checkpointing"]
