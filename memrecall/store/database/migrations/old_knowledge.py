"""After step 5: knowledge that was stored before it was indexed."""

import secrets

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.store.database.memory_tables import knowledge, knowledge_bases
from memrecall.text import analyze


async def index_old_knowledge(connection: AsyncConnection) -> None:
    """Give every entry its search text and its number among its agent's."""
    columns = (knowledge.c.agent_id, knowledge.c.knowledge_key)
    wanted = select(*columns, knowledge.c.summary, knowledge.c.content)
    numbers: dict[str, int] = {}
    for row in (await connection.execute(wanted.order_by(*columns))).all():
        numbers[row.agent_id] = number = numbers.get(row.agent_id, 0) + 1
        same = [column == row._mapping[column.name] for column in columns]
        said = analyze(f"{row.summary}\n{row.content}").to_search_text()
        stated = update(knowledge).where(*same)
        await connection.execute(stated.values(search_text=said, change_no=number))
    bases = [
        {"agent_id": agent, "version": number, "epoch": secrets.token_hex(8)}
        for agent, number in numbers.items()
    ]
    if bases:
        await connection.execute(insert(knowledge_bases), bases)
