"""Build a rewriter with its validators from command-line options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from benchmarks.core.errors import UserError, first_error, in_words, unknown_name
from benchmarks.schema import Passage
from benchmarks.styles.rules import STYLES, RuleRewriter
from judges.judge import JUDGES, Judge
from judges.style import ContentValidator, EntityValidator, StyleValidator
from methods.api import Services
from methods.models.counting import Estimate
from methods.models.llm import LLMConfig
from methods.models.rewriter import LLMRewriter, RewriterConfig, Validator, load_prompt, styles_of
from results.store.redaction import without_secrets

SET = "--set"


def judge_of(name: str, options: Mapping[str, Any], where: str = "JUDGE", *, prefix: str = "") -> Judge:
    """Look up a judge and validate its options.

    Args:
        name: Id of the judge.
        options: Options from --config and --set.
        where: Name of the option that names the judge, for errors.
        prefix: Prefix of each option's key on the command line.

    Raises:
        UserError: The judge is unknown, or an option is invalid.
    """
    with options_of(name, JUDGES.get(name, where=where).config, prefix):
        return Judge.of(name, options, where=where)


@contextmanager
def options_of(name: str, config: type[BaseModel], prefix: str = "") -> Iterator[None]:
    """Convert validation errors of options in a block to user errors; arguments as in `refusal`."""
    try:
        yield
    except ValidationError as error:
        raise refusal(error, name, config, prefix) from None


def refusal(error: ValidationError, name: str, config: type[BaseModel], prefix: str = "") -> UserError:
    """Make the user error for the first invalid option; `prefix` precedes each key on the command line."""
    first = first_error(error)
    option = ".".join(map(str, first["loc"]))
    if not option:
        return UserError(f"{name}: {without_secrets(in_words(first))}", code="refused-model", where=SET)
    if first["type"] == "extra_forbidden":
        of_model = [f"llm.{field}" for kind in get_args(LLMConfig) for field in kind.model_fields]
        known = of_model if first["loc"][0] == "llm" else config.model_fields
        return unknown_name(f"option of {name}", without_secrets(option), known, where=SET)
    if first["type"] == "missing":
        hint = f"{SET} {prefix}{option}{'.model' if option == 'llm' else ''}=…"
        return UserError(f"{name} needs {option}", code="missing-option", where=SET, try_this=hint)
    if first["type"] == "literal_error":
        offered = re.findall("'([^']*)'", first["ctx"]["expected"])
        return unknown_name(f"value of {option}", without_secrets(str(first["input"])), offered, where=SET)
    return UserError(f"option {option} of {name}: {without_secrets(in_words(first))}", code="bad-option", where=SET)


KINDS = ("llm", "rule")
VALIDATE = "--validate"
ENTITIES = "entities"
MEASURES = {"style": "informal", "content": "kept"}
"""Measure that a judge must have to validate style or content."""
ROLES = (*MEASURES, ENTITIES)
_SHARES = ("content_loss", "opener", "closer")
"""Options of the rule-based rewriter."""


@dataclass(frozen=True)
class Chosen:
    """Rewriter with the judges that validate its texts."""

    rewriter: RuleRewriter | LLMRewriter
    judges: tuple[Judge, ...] = ()

    @property
    def tries(self) -> int:
        """Return the maximum number of attempts per passage."""
        return self.rewriter.config.tries if isinstance(self.rewriter, LLMRewriter) else 1

    def check(self, styles: Sequence[str]) -> None:
        """Check that the rewriter knows each style.

        Raises:
            UserError: A style is unknown to the rewriter.
        """
        for style in styles:
            if isinstance(self.rewriter, LLMRewriter):
                folder = self.rewriter.config.prompts
                if style not in styles_of(folder):
                    raise unknown_name("style", style, styles_of(folder), where="--style")
                load_prompt(style, folder)
            elif style not in STYLES:
                raise unknown_name("style", style, STYLES, where="--style")

    def reach(self, cache: Path) -> None:
        """Test every endpoint with one short call; endpoints with cached replies are skipped.

        Raises:
            Broke: An endpoint does not answer; the message explains why.
        """
        for judge in self.judges:
            judge.config.reach(cache)
        if isinstance(self.rewriter, LLMRewriter):
            self.rewriter.config.reach(cache)

    def estimate(self, passages: Mapping[str, Sequence[Passage]]) -> Estimate | None:
        """Estimate the cost of one call per passage; None without a model."""
        if not isinstance(self.rewriter, LLMRewriter):
            return None
        results = [self.rewriter.estimate(some, style) for style, some in passages.items()]
        return Estimate(
            sum(item.calls for item in results),
            sum(item.cached for item in results),
            sum(item.prompt_tokens for item in results),
            sum(item.completion_tokens for item in results),
            sum(item.usd for item in results),
            results[0].counted_by,
        )

    def judging_calls(self, passages: Mapping[str, Sequence[Passage]]) -> int:
        """Return the maximum number of calls of the validating judges if every passage is rewritten once."""
        queries = {judge: sum(map(len, _validated(judge, passages))) for judge in self.judges if not judge.rule}
        return sum(getattr(judge.config, "repetitions", 1) * number for judge, number in queries.items())


def chosen(kind: str, options: Mapping[str, Any], validators: Sequence[str], split: str | None, services: Services) -> Chosen:
    """Create the rewriter and its validators from command-line options.

    Args:
        kind: `llm` or `rule`.
        options: Options of the rewriter; under a role's name, options of its judge.
        validators: `style=JUDGE`, `content=JUDGE` or `entities=SHARE`; a role without a value uses the judge of that name, or
            requires all entities.
        split: Split of the benchmark, which selects the rules of the rule-based rewriter.
        services: Provides the reply cache.

    Raises:
        UserError: An option is invalid.
    """
    if kind not in KINDS:
        raise unknown_name("rewriter", kind, KINDS, where="--rewriter")
    roles = _roles(validators)
    own = {key: value for key, value in options.items() if key not in MEASURES}
    of_roles = {role: _of_role(role, options[role], roles) for role in MEASURES if role in options}
    if kind == "rule":
        if roles:
            raise UserError(
                "rewrites by rules are not validated: a second try gives the same text",
                code="rules-not-validated",
                where=VALIDATE,
                try_this="--rewriter llm; or ragmeter data style-quality, which measures texts of any origin",
            )
        return Chosen(_by_rules(own, split))
    with options_of("the rewriter", RewriterConfig):
        config = RewriterConfig.model_validate(own)
    judges = {role: _judge(role, name, of_roles.get(role, {})) for role, name in roles.items() if role in MEASURES}
    made = [_validator(role, name, judges.get(role), services) for role, name in roles.items()]
    return Chosen(LLMRewriter(config, validators=made, services=services), tuple(judges.values()))


def judge_measuring(measure: str, name: str, options: Mapping[str, Any], where: str, prefix: str = "") -> Judge:
    """Look up a judge of texts that has a given measure, and validate its options.

    Raises:
        UserError: The judge is unknown, lacks the measure, or its options are invalid.
    """
    fits = [entry.id for entry in JUDGES if measure in {measure.name for measure in entry.measures}]
    if name in JUDGES and name not in fits:
        raise UserError(f"the judge {name!r} does not measure {measure!r}", code="unknown-measure", where=where, try_this=" or ".join(fits))
    judge = judge_of(name, options, where, prefix=prefix)
    judge.config.preflight()
    return judge


def _validated(judge: Judge, passages: Mapping[str, Sequence[Passage]]) -> list[Sequence[Passage]]:
    """Return the passages whose rewritings a judge checks: for a judge of style only those that should be informal."""
    by_style = MEASURES["style"] in {measure.name for measure in judge.entry.measures}
    return [some for style, some in passages.items() if not by_style or style == MEASURES["style"]]


def _roles(validators: Sequence[str]) -> dict[str, str]:
    results: dict[str, str] = {}
    for text in validators:
        role, mark, value = text.partition("=")
        if role not in ROLES:
            raise unknown_name("validator", role, ROLES, where=VALIDATE)
        if role in results:
            raise UserError(f"{role} is validated twice", code="duplicate-validation", where=VALIDATE, try_this="one validator each")
        if mark and not value:
            raise UserError(f"{text!r} names no validator", code="unknown-validator", where=VALIDATE, try_this=f"{VALIDATE} {role}")
        results[role] = value or ("1" if role == ENTITIES else role)
    return results


def _of_role(role: str, options: object, roles: Mapping[str, str]) -> Mapping[str, Any]:
    if role not in roles:
        raise UserError(f"{role} is not validated", code="not-validated", where=f"{SET} {role}", try_this=f"{VALIDATE} {role}")
    if not isinstance(options, Mapping):
        raise UserError(
            f"the judge's options are {role}.key=value",
            code="bad-judge-option",
            where=f"{SET} {role}",
            try_this=f"{SET} {role}.llm.model=…",
        )
    return options


def _by_rules(options: Mapping[str, Any], split: str | None) -> RuleRewriter:
    for name, value in options.items():
        if name not in _SHARES:
            raise unknown_name("option of the rule-based rewriter", name, _SHARES, where=SET)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UserError(
                f"{name} must be a share between 0 and 1, not {value!r}", code="bad-share", where=SET, try_this=f"{SET} {name}=0.5"
            )
    return RuleRewriter(split if split in ("train", "validation") else "test", **options)


def _judge(role: str, name: str, options: Mapping[str, Any]) -> Judge:
    return judge_measuring(MEASURES[role], name, options, VALIDATE, f"{role}.")


def _validator(role: str, name: str, judge: Judge | None, services: Services) -> Validator:
    if judge is not None:
        of = StyleValidator.of if role == "style" else ContentValidator.of
        return of(judge, services)
    try:
        share = float(name)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(
            f"{name!r} is not a share of names and numbers", code="bad-name-share", where=VALIDATE, try_this=f"{VALIDATE} {role}=0.9"
        )
    return EntityValidator(share)
