"""What the endpoints take and give, as OpenAPI says it; rows have the columns of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cg4ai.apps.protocol import InputColumn
from cg4ai.extras import import_optional
from cg4ai.report.card import ModelCard

if TYPE_CHECKING:
    from fastapi import FastAPI

ROW, ERROR = "Row", "Error"
REFUSALS = {
    401: "The token is missing or wrong.",
    408: "The request did not arrive in time.",
    409: "The run that is there now cannot be loaded; the old one stays.",
    413: "The body is too large, or has too many rows.",
    415: "The body is compressed, which this server does not read.",
    422: "The body is wrong; the words are those of the library.",
    503: "Too many requests at once; try again after the seconds of Retry-After.",
    504: "There was no answer in time.",
}


def make_reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def make_content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def describe_refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Answers of these codes, each an object with one line of words."""
    return {
        code: {"description": REFUSALS[code], **make_content(make_reference(ERROR))}
        for code in codes
    }


def describe_predictions() -> dict[str, Any]:
    """What `add_api_route` is told of predictions, beside path and function."""
    answer = {
        "type": "object",
        "required": ["rows", "warnings", "model"],
        "properties": {
            "rows": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Names and values, a row for each row of the request.",
            },
            "warnings": {"type": "array", "items": {"type": "string"}},
            "model": {"type": "string", "description": "Which run answered, by its SHA-256."},
            "paths": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
                "description": "Of a router: the nodes of the path that each column is of.",
            },
            "fallback": {
                "type": "object",
                "description": "Of a router: how many answers are its own, improved or solved.",
            },
            "churn": {
                "type": "object",
                "description": "Of a router with bounded changes: how far answers moved.",
            },
            "drift": {
                "type": "object",
                "description": "Of a router, where rows lie outside its set: what they exceed.",
            },
        },
    }
    return {
        "methods": ["POST"],
        "description": "Columns are matched by name, further ones are ignored; all rows have the "
        "same columns. Rows outside the region of the guarantee are marked.",
        "openapi_extra": {"requestBody": {"required": True, **make_content(_request())}},
        "responses": {
            200: {"description": "A row of answers for each.", **make_content(answer)},
            **describe_refusals(401, 408, 413, 415, 422, 503, 504),
        },
    }


def describe_lookup(kind: str, *, token: bool) -> dict[str, Any]:
    """The same of what is only looked at, which is of this media type."""
    answer = {"description": "The answer.", "content": {kind: {}}}
    return {"methods": ["GET"], "responses": {200: answer, **describe_refusals(*[401] * token)}}


def describe_reload() -> dict[str, Any]:
    """The same of loading the run anew."""
    properties = {"model": {"type": "string"}, "changed": {"type": "boolean"}}
    answer = {"type": "object", "properties": properties}
    return {
        "methods": ["POST"],
        "responses": {
            200: {"description": "Loaded; whether it is another one.", **make_content(answer)},
            **describe_refusals(401, 409, 503),
        },
    }


def _request() -> dict[str, Any]:
    def make_switch(words: str) -> dict[str, Any]:
        return {"type": "boolean", "default": False, "description": words}

    return {
        "type": "object",
        "required": ["rows"],
        "additionalProperties": False,
        "properties": {
            "rows": {
                "type": "array",
                "minItems": 1,
                "items": make_reference(ROW),
                "description": "Objects by column name; / says which columns there must be.",
            },
            "details": make_switch("What follows, too: of a router each link's utilisation."),
            "explain": make_switch("How strongly each rule is kept, as /explain says in any case."),
            "refuse_outside": make_switch("Refuse rows outside the region of a rule."),
            "failed": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "Of a router: links that are down, such as A-B; the failure must "
                "have been studied by cg4ai failures.",
            },
            "fallback": {
                "type": ["number", "null"],
                "minimum": 0,
                "description": "Of a router: improve or solve rows whose proven gap is larger, and "
                "solve those outside the set; null: neither. Without it the run decides.",
            },
            "churn": {
                "type": ["number", "null"],
                "minimum": 0,
                "maximum": 1,
                "description": "Of a router: the share of each demand that may change path from "
                "one answer to the next; null: any. Without it the run decides.",
            },
        },
    }


def make_document(app: FastAPI, card: ModelCard, *, token: bool) -> dict[str, Any]:
    """The whole document, for the run that answers now."""
    made: dict[str, Any] = import_optional("fastapi.openapi.utils").get_openapi(
        title="cg4ai serve",
        version=card.version,
        description=f"{card.interface.title[0].upper()}{card.interface.title[1:]}. {card.sentence}",
        routes=app.routes,
    )
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    schemas[ROW] = {
        "type": "object",
        "required": [one.name for one in card.interface.inputs],
        "properties": {one.name: _column(one) for one in card.interface.inputs},
        "example": card.example,
    }
    schemas[ERROR] = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string", "description": "One line."}},
    }
    if token:
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
    return made


def _column(one: InputColumn) -> dict[str, Any]:
    kind = {"number": "number", "boolean": "boolean", "text": "string"}[one.kind]
    made: dict[str, Any] = {"type": [kind, "null"] if one.may_be_empty else kind}
    if one.least is not None and one.most is not None:
        made["description"] = f"In the region from {one.least:g} to {one.most:g}."
    if one.values:
        made["description"] = f"One of {', '.join(one.values)}; others count as none of them."
    return made
