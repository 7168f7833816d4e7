"""Writers under a chosen model of the reciprocal, where that can be chosen.

A kernel executed by the machine takes its MUFU.RCP from a model. The reference has a model as well.
What any other writer uses is its own business.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from oracle.machine.ir import Function
from oracle.machine.launch import Statistics
from oracle.machine.primitives import RcpModel, rcp_exact
from oracle.machine.reciprocal_table import rcp_model
from oracle.machine.tiers import TieredProgram
from oracle.reference import reference_write
from oracle.requests import Stored, StoreRequest
from oracle.subjects.base import Writer
from oracle.subjects.binary import MachineWriter
from oracle.subjects.reference import ReferenceWriter


class _ModelledProgram(TieredProgram):
    """A program every launch of which uses one model of the reciprocal."""

    def __init__(self, function: Function, rcp: RcpModel) -> None:
        super().__init__(function)
        self._rcp = rcp

    def launch(self, *arguments: Any, **options: Any) -> Statistics:
        """As TieredProgram.launch, whatever model it is asked for."""
        return super().launch(*arguments, **{**options, "rcp": self._rcp})


class _ModelledReference(ReferenceWriter):
    """The specification under another model than the correctly rounded one."""

    def __init__(self, writer: ReferenceWriter, rcp: RcpModel) -> None:
        super().__init__(writer.info, writer.k_layout, writer.v_layout)
        self._rcp = rcp

    def write(self, request: StoreRequest) -> Stored:
        """Store as the specification says."""
        search = self.info.scale_search
        return Stored(reference_write(request, self.k_layout, self.v_layout, search, self._rcp))


def under_model(writer: Writer, model: str) -> Writer:
    """A writer that uses the named model, or the writer itself where it has one of its own.

    Raises UsageError for a name that is no model and a table that is damaged; Unsupported for a
    kernel the machine cannot execute.
    """
    rcp = rcp_model(model)
    if rcp is rcp_exact:
        # That of every writer whose reciprocal can be chosen at all.
        return writer
    if isinstance(writer, ReferenceWriter):
        return _ModelledReference(writer, rcp)
    if isinstance(writer, MachineWriter):
        modelled = copy(writer)
        modelled.program = _ModelledProgram(writer.program.function, rcp)
        return modelled
    return writer
