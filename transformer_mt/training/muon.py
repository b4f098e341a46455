"""The Muon optimizer: orthogonalised momentum for the matrices of the layers."""

from collections import defaultdict

import torch
from torch import Tensor, nn

from transformer_mt.nn.kernels.capability import multiplies_fast
from transformer_mt.nn.kernels.foreach import add_each, copy_each, scale_each
from transformer_mt.nn.linear import StackedLinear
from transformer_mt.training.optimizers import build_adam

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5
# AdamW's updates have about this root mean square, so that both can share a learning rate.
_ADAMW_RMS = 0.2
_EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """Muon for some weights and AdamW for the others, as one optimizer.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; the size
    of updates as in Liu et al. 2025, equation 4. differs: matrices of equal shape, or of shapes
    that are equal once the taller is transposed, are orthogonalised together.

    Args:
        matrices: Weights (out, in) by how many projections they hold one below the other; each
            projection is orthogonalised alone.
        adamw: Updates all other weights. It shares its state and its groups.
        momentum: Decay of the mean of gradients.
        weight_decay: On the matrices, decoupled.
    """

    def __init__(
        self,
        matrices: dict[int, list[nn.Parameter]],
        adamw: torch.optim.Adam,
        *,
        momentum: float,
        weight_decay: float,
    ) -> None:
        self._adamw = adamw
        self._num_matrix_groups = len(matrices)
        groups = [{"params": weights, "num_parts": number} for number, weights in matrices.items()]
        defaults = {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([*groups, *adamw.param_groups], defaults)
        adamw.state = self.state
        # Lets `apply_update` and torch.amp.GradScaler skip an update by a flag on the device.
        self._step_supports_amp_scaling = bool(adamw.param_groups[0]["fused"])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient; none where `found_inf` is set and 1."""
        unusable: Tensor | None = getattr(self, "found_inf", None)
        stacks: defaultdict[torch.Size, list[tuple[Tensor, Tensor, Tensor]]] = defaultdict(list)
        for group in self.param_groups[: self._num_matrix_groups]:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                triples = (weight, weight.grad, state["momentum_buffer"])
                for part in zip(*(x.chunk(group["num_parts"]) for x in triples), strict=True):
                    num_out, num_in = part[0].shape
                    wide = part if num_out <= num_in else tuple(x.mT for x in part)
                    stacks[wide[0].shape].append(wide)
        for parts in stacks.values():
            self._update(parts, unusable)
        if unusable is None:
            self._adamw.step()
            return
        self._adamw.grad_scale = None  # type: ignore[attr-defined]
        self._adamw.found_inf = unusable  # type: ignore[attr-defined]
        self._adamw.step()
        del self._adamw.grad_scale, self._adamw.found_inf  # type: ignore[attr-defined]

    def _update(self, parts: list[tuple[Tensor, Tensor, Tensor]], unusable: Tensor | None) -> None:
        """Update weights (n, m), n <= m, given as (weight, gradient, momentum)."""
        group = self.param_groups[0]  # of matrices, as there are some
        lr, momentum = group["lr"], group["momentum"]
        weights, gradients, means = (list(tensors) for tensors in zip(*parts, strict=True))
        gradient, old_mean = torch.stack(gradients), torch.stack(means)
        mean = old_mean.lerp(gradient, 1 - momentum)
        update = orthogonalize(gradient.lerp(mean, momentum)).to(gradient.dtype)
        shrinkage = 1 - lr * group["weight_decay"]
        update *= -lr * _ADAMW_RMS * max(update.shape[1:]) ** 0.5
        if unusable is not None:
            mean = torch.where(unusable > 0, old_mean, mean)
            update = torch.where(unusable > 0, 0, update)
            shrinkage = torch.where(unusable > 0, 1.0, shrinkage)
        copy_each(means, mean.unbind())
        if group["weight_decay"]:
            scale_each(weights, shrinkage)
        add_each(weights, update.unbind())


def build_muon(
    model: nn.Module,
    *,
    momentum: float,
    weight_decay: float,
    adamw_lr_ratio: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> Muon:
    """Return Muon over the matrices of the layers of `model`, AdamW over all other weights.

    Embeddings, the output matrix, norms and biases are the others. The learning rate is set before
    each update with `set_learning_rate`.

    Args:
        model: Its tied weights count once.
        momentum: Of Muon, Nesterov's.
        weight_decay: Decoupled; on all matrices.
        adamw_lr_ratio: Learning rate of the other weights, as a share of that of the matrices.
        beta1: Decay of the mean of gradients, of the other weights.
        beta2: Decay of the mean of squared gradients, of the other weights.
        eps: Added to the root of the mean square, of the other weights.
    """
    num_projections: dict[nn.Parameter, int] = {}
    for stack in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
        for module in stack.modules():
            number = module.num_projections if isinstance(module, StackedLinear) else 1
            own = module.parameters(recurse=False)
            num_projections |= {weight: number for weight in own if weight.ndim == 2}
    matrices: defaultdict[int, list[nn.Parameter]] = defaultdict(list)
    others = []
    for weight in model.parameters():
        if weight.requires_grad and weight in num_projections:
            matrices[num_projections[weight]].append(weight)
        elif weight.requires_grad:
            others.append(weight)
    adamw = build_adam(
        others, "adamw", beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay
    )
    for group in adamw.param_groups:
        group["lr_ratio"] = adamw_lr_ratio
    return Muon(matrices, adamw, momentum=momentum, weight_decay=weight_decay)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Bring all singular values of matrices (B, n, m), n <= m, near to 1.

    "Near" is 0.7 to 1.2: the coefficients are chosen for speed, and more exactness does not help.
    So it computes, and returns, bf16 where the device multiplies fast in it, and fp32 elsewhere.

    Source: Jordan et al. 2024: five steps of a Newton-Schulz iteration of degree five.
    """
    a, b, c = _COEFFICIENTS
    x = (
        matrices.bfloat16()
        if multiplies_fast(torch.bfloat16, matrices.device)
        else matrices.float()
    )
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=_EPS)
    for _ in range(_STEPS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x
