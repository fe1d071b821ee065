"""Issues tokens: signs one, and records until when its holder has a valid one."""

from datetime import timedelta

from api.app_state import AppState
from api.auth import Subject
from mitosis.contracts.http import Token
from mitosis.store.users.tokens import record_issue


async def issue_token(state: AppState, subject: Subject, lifetime: timedelta) -> Token:
    """Return a new token, which only this answer shows. Earlier ones stay valid."""
    token = state.signer.issue(subject, lifetime)
    await record_issue(
        state.store, subject.kind, subject.id, subject.token_version, token.expires_at
    )
    return token
