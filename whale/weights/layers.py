"""How a model's decoder layers are run: compiled, or with their activations computed again in the backward pass.

transformers' own `gradient_checkpointing_enable` does nothing in a model whose `training` is False, and ours is
so for the lack of dropout. Layers are therefore wrapped here, whatever their `training` says.
"""

from functools import partial

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from whale.errors import UsageError


def arrange(model: PreTrainedModel, recompute: bool, compiled: bool, backend: str = "inductor") -> None:
    """Run each decoder layer as said from now on; what an earlier call arranged is undone.

    Raises UsageError if the model has no layers that transformers itself would run this way.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers and (recompute or compiled):
        raise UsageError(f"{model.config.model_type}: no decoder layers that can be recomputed or compiled")
    for layer in layers:
        vars(layer).pop("forward", None)
        forward = layer.forward
        if compiled:
            # Layers share their code, and so what is compiled for it; sizes become symbols at their second value.
            forward = torch.compile(forward, backend=backend)
        if recompute:
            # Nothing is drawn at random in a layer without dropout.
            forward = partial(checkpoint, forward, use_reentrant=False, preserve_rng_state=False)
        if compiled or recompute:
            layer.forward = forward
