"""Conditions of lists that show what one user may read. Their parameter is ``viewer``, the user's id."""

from sqlalchemy import Uuid, bindparam, exists, select

from mitosis.store.pg.tables import user_group_members, users

_IS_VIEWER = users.c.uuid == bindparam("viewer", type_=Uuid)

VIEWER_IS_ADMIN = exists(select(users.c.id).where(_IS_VIEWER, users.c.is_admin))

USER_GROUPS_OF_VIEWER = select(user_group_members.c.user_group_id).where(
    user_group_members.c.user_id.in_(select(users.c.id).where(_IS_VIEWER))
)
