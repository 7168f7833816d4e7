"""A verdict as JUnit XML, which CI systems show: one test case for each finding and agreement.

A suite holds what one subject did and, for a writer, who reads it. The failures are what makes the
exit code 1: faults of those the verdict is about, and disagreements that are judged. What was not
obtained is skipped, with the reason. No time is in it: the same verdict gives the same bytes. The
elements and attributes are those that Ant, Maven and Jenkins agree on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree

from oracle.report.digest import configuration_in_words, misplacement_in_words, witness_in_words
from oracle.report.document import TOOL
from oracle.report.faultwords import defects_in_words, landings_in_words
from oracle.subjects.base import SubjectInfo
from oracle.text import printable
from oracle.verdict import FAULTY, NOT_OBTAINED, Agreement, Finding, Verdict

FAILURE, SKIPPED, PASSED = "failure", "skipped", "passed"


class Case(NamedTuple):
    """One test case: what came of it, in short (the type of a failure) and in words."""

    name: str
    outcome: str
    kind: str = ""
    told: str = ""


def as_junit(verdict: Verdict) -> str:
    """The verdict as an XML document; characters that XML cannot hold are spelled as escapes."""
    judged = {info.id for info in verdict.judged}
    roles = {info.id: info.role for info in verdict.subjects}
    cases: dict[str, list[Case]] = {info.id: [] for info in verdict.subjects}
    for finding in verdict.findings:
        whose = finding.subject
        cases[whose].append(_of_finding(finding, roles[whose], whose in judged))
    for pair in verdict.agreements:
        cases[pair.writer].append(_of_agreement(pair))
    root = ElementTree.Element("testsuites", name=TOOL["name"])
    for info in verdict.subjects:
        root.append(_suite(info, cases[info.id]))
    _count(root, [case for mine in cases.values() for case in mine])
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _of_finding(finding: Finding, role: str, judged: bool) -> Case:
    name = (
        f"{finding.side} {finding.plane}, {configuration_in_words(finding.configuration)}, "
        f"{finding.scale_search}"
    )
    if finding.status in NOT_OBTAINED:
        return Case(name, SKIPPED, finding.status, f"{finding.status}: {finding.reason}")
    if finding.status not in FAULTY:
        return Case(name, PASSED)
    parts = (
        f"declared: {finding.declared or 'nothing'}",
        f"found: {' = '.join(finding.layouts) or finding.shape_stride or 'no named layout'}",
        finding.reason or "",
        witness_in_words(finding.witness) if finding.witness else "",
        defects_in_words(finding.defects, role),
        *landings_in_words(finding),
    )
    told = f"{finding.status}: {'; '.join(filter(None, parts))}"
    # What a reader does by itself is the context of a verdict about writers.
    return Case(name, FAILURE if judged else PASSED, finding.status, told)


def _of_agreement(pair: Agreement) -> Case:
    where = configuration_in_words(pair.configuration)
    name = f"{pair.side} scales as {pair.reader} reads them, {where}"
    if pair.status == "undecided":
        return Case(name, SKIPPED, pair.status, f"{pair.status}: {pair.reason}")
    if pair.status == "agree":
        return Case(name, PASSED)
    shown = misplacement_in_words(pair.witness, pair.side) if pair.witness else ""
    told = f"{pair.disagreeing} of {pair.positions} positions disagree: {shown}"
    return Case(name, FAILURE if pair.judged else PASSED, pair.status, told)


def _suite(info: SubjectInfo, cases: list[Case]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=printable(info.id))
    _count(suite, cases)
    known = {
        "role": info.role,
        "what": info.name,
        "executor": info.executor,
        "arch": info.arch,
        "kernel": info.kernel,
        "sha256": info.artifact_sha256,
    }
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in known.items():
        if value is not None:
            ElementTree.SubElement(properties, "property", name=name, value=printable(value))
    for case in cases:
        suite.append(_case(info, case))
    return suite


def _case(info: SubjectInfo, case: Case) -> ElementTree.Element:
    made = ElementTree.Element(
        "testcase", classname=printable(info.id), name=printable(case.name), time="0"
    )
    told = printable(case.told)
    if case.outcome == FAILURE:
        failure = ElementTree.SubElement(made, "failure", type=case.kind, message=told)
        failure.text = told
    elif case.outcome == SKIPPED:
        ElementTree.SubElement(made, "skipped", message=told)
    elif told:
        ElementTree.SubElement(made, "system-out").text = f"not judged: {told}"
    return made


def _count(element: ElementTree.Element, cases: Iterable[Case]) -> None:
    outcomes = [case.outcome for case in cases]
    element.set("tests", str(len(outcomes)))
    element.set("failures", str(outcomes.count(FAILURE)))
    element.set("errors", "0")
    element.set("skipped", str(outcomes.count(SKIPPED)))
    element.set("time", "0")
