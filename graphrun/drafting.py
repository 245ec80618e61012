"""How a user wants tokens to be drafted, and the session that does."""

from __future__ import annotations

from dataclasses import dataclass

from graphrun.core.errors import UsageError
from graphrun.core.gguf import ModelFile
from graphrun.draft import DFlashDrafter, Drafter, MtpDrafter
from graphrun.hub import resolve
from graphrun.lookup import DFlashWithLookup, Lookup, MtpWithLookup
from graphrun.model import Model, graph_of
from graphrun.session import MOST_DRAFTS, Session

MTP_DRAFTS, MTP_P_MIN, DFLASH_P_MIN = 7, 0.6, 0.3  # where a user does not say


@dataclass(frozen=True)
class Drafting:
    """Guess up to `most` tokens a step, each at least `p_min` probable by its drafter.

    mtp: a file of the MTP layer alone; dflash: a DFlash 2 file; lookup: also guess what followed the same tokens
    before. With `most` alone the MTP layer of the model itself drafts. None of them changes what is generated.
    """

    most: int | None = None
    p_min: float | None = None
    mtp: str | None = None
    dflash: str | None = None
    lookup: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError that names the flag."""
        if self.mtp is not None and self.dflash is not None:
            raise UsageError("give one of --mtp and --dflash")
        if self.most is not None and not 1 <= self.most <= MOST_DRAFTS:
            raise UsageError(f"--draft {self.most} makes no sense: it must be between 1 and {MOST_DRAFTS}")
        if self.p_min is not None:
            if not 0 <= self.p_min <= 1:
                raise UsageError(f"--draft-pmin {self.p_min} makes no sense: it must be between 0 and 1")
            if self.most is None and self.mtp is None and self.dflash is None:
                raise UsageError("--draft-pmin goes with --draft, --mtp or --dflash")

    @property
    def wanted(self) -> bool:
        return self.most is not None or self.mtp is not None or self.dflash is not None or self.lookup

    def session(self, model: Model) -> Session:
        """A new sequence of the model with this drafter.

        Raises UsageError for a model without what it takes, ModelError for a file of another model.
        """
        if not self.wanted:
            return model.session()
        if not model.takes("verify", 2) or not model.has("verify"):
            raise UsageError(f"{model.spec.arch} has no step verify for 2 tokens or more, which drafts need")
        drafter, most = self._drafter(model)
        return Session(model, drafter, most)

    def _drafter(self, model: Model) -> tuple[Drafter, int]:
        """The drafter and the most tokens that it guesses."""
        if self.dflash is not None:
            p_min = DFLASH_P_MIN if self.p_min is None else self.p_min
            block = DFlashDrafter(model, resolve(self.dflash), p_min)
            return DFlashWithLookup(block) if self.lookup else block, self.most or MOST_DRAFTS
        source = self._mtp_file(model)
        if source is not None or (self.most is not None and model.has("draft")):
            p_min = MTP_P_MIN if self.p_min is None else self.p_min
            mtp, most = MtpDrafter(model, source, p_min), self.most or MTP_DRAFTS
            return (MtpWithLookup(mtp, most), MOST_DRAFTS) if self.lookup else (mtp, most)
        if not self.lookup:
            hint = "--lookup drafts from the text itself, --mtp FILE and --dflash FILE with other files"
            raise UsageError(f"{model.file.path} has no MTP layer to draft with", hint)
        return Lookup(), self.most or MOST_DRAFTS

    def _mtp_file(self, model: Model) -> Model | None:
        if self.mtp is None:
            return None
        file, activations = ModelFile.open(resolve(self.mtp)), "exact" if model.exact else "q8"
        spec = graph_of(file, None)
        return Model(file, spec, model.backend, context=model.context, activations=activations, ops=model.ops)  # type: ignore[arg-type]


NO_DRAFTS = Drafting()
