"""The texts of pages that change data, in English and Chinese, by name."""

CHANGE_WORDS: dict[str, tuple[str, str]] = {
    "close": ("Close", "关闭"),
    "save": ("Save", "保存"),
    "nothing_changed": ("Nothing was changed.", "没有任何改动。"),
    # Why a change was refused, by the reason of the error.
    "failed_gone": (
        "It was deleted or erased meanwhile, or this key may not access it. Reload the page.",
        "内容已被删除或清除，或当前密钥无权访问。请刷新页面。",
    ),
    "failed_changed": (
        "Someone else changed this memory meanwhile. Nothing was saved; reload the page.",
        "这条记忆刚被他人修改，您的改动未保存。请刷新页面。",
    ),
    "failed_superseded": (
        "A newer memory has replaced this one meanwhile. Reload the page.",
        "这条记忆已被新的记忆取代。请刷新页面。",
    ),
    "failed_no_change": (
        "There is no change left to undo.",
        "没有可以撤销的修改。",
    ),
    "failed_contradicted": (
        "It cannot be restored: another memory says otherwise now. Delete that one first.",
        "无法恢复：现在有另一条记忆与之矛盾，请先删除那一条。",
    ),
    "failed_read_only": ("This key is read-only.", "当前密钥为只读，不能修改数据。"),
    "failed_agent_key": (
        "This key is bound to one agent; it cannot export or erase a whole user.",
        "当前密钥仅限一个智能体，不能导出或清除整个用户。",
    ),
    "failed_sensitive": (
        "The user has sensitive memories, which this key may not read.",
        "该用户有敏感记忆，当前密钥无权读取。",
    ),
    # One memory.
    "pinned": ("pinned", "已保留"),
    "expired": ("expired", "已过期"),
    "expires": ("Expires", "到期时间"),
    "state_expired": ("Including expired", "包含已过期"),
    "edit": ("Edit", "编辑"),
    "edit_hint": (
        "The history keeps the previous version.",
        "变更历史会保留修改前的内容。",
    ),
    "memory_text": ("Text", "内容"),
    "pin": ("Pin", "保留"),
    "ask_pin": (
        "Pin this memory? Retention policies do not remove pinned memories.\n\n{text}",
        "保留这条记忆？保留后，清理策略不会删除它。\n\n{text}",
    ),
    "unpin": ("Unpin", "取消保留"),
    "ask_unpin": (
        "Unpin this memory? Retention policies may remove it then.\n\n{text}",
        "取消保留这条记忆？之后清理策略可能会删除它。\n\n{text}",
    ),
    "expire": ("Expire", "设为过期"),
    "ask_expire": (
        "Let this memory expire? Expired memories are not recalled.\n\n{text}",
        "让这条记忆过期？过期的记忆不会再被回忆。\n\n{text}",
    ),
    "last_day": ("Last day (empty: expires now)", "最后一天（留空则立即过期）"),
    "keep": ("Remove expiry", "取消过期"),
    "ask_keep": (
        "Remove the expiry of this memory?\n\n{text}",
        "取消这条记忆的到期时间？\n\n{text}",
    ),
    "restore": ("Restore", "恢复"),
    "ask_restore": (
        "Restore this memory, and what was deleted with it?\n\n{text}",
        "恢复这条记忆以及随它一起删除的内容？\n\n{text}",
    ),
    "restore_text": ("Restore this text", "恢复这段内容"),
    "ask_restore_text": (
        "Replace the text of the memory by this earlier one?\n\n{text}",
        "将记忆内容恢复为这个旧版本？\n\n{text}",
    ),
    "merge": ("Merge", "合并"),
    "ask_merge": (
        "Replace the selected memories by one, which has the sources of all? It can be undone.",
        "将所选记忆合并为一条，并保留全部来源？合并后可以撤销。",
    ),
    "no_similar": ("No similar memories were found.", "没有找到相似的记忆。"),
    "choose_others": ("Select at least two memories.", "请至少选择两条记忆。"),
    # Several memories.
    "select_memory": ("Select: {text}", "选择：{text}"),
    "select_all": ("Select all on this page", "选择本页全部"),
    "choose_memories": ("Select memories first.", "请先选择记忆。"),
    "delete_selected": ("Delete selected", "删除所选"),
    "ask_delete_selected": (
        "Delete the selected memories ({count})? They are hidden at once; it can be undone.",
        "删除 {count} 条记忆？删除后立即隐藏，之后可以撤销。",
    ),
    "restore_selected": ("Restore selected", "恢复所选"),
    "ask_restore_selected": (
        "Restore the selected memories ({count}), and what was deleted with them?",
        "恢复 {count} 条记忆以及随它们一起删除的内容？",
    ),
    "merge_selected": ("Merge selected", "合并所选"),
    "undo_deletion": ("Undo", "撤销"),
    "not_restored": (
        "Restored: {count}. These could not be restored:",
        "已恢复 {count} 条。以下记忆未能恢复：",
    ),
    "done_deleted": ("Deleted memories: {count}.", "已删除 {count} 条记忆。"),
    "done_expired_undo": (
        "This deletion can no longer be undone here: the memories were restored, changed or "
        "erased since.",
        "这次删除已无法在此撤销：相关记忆此后已被恢复、修改或清除。",
    ),
    "done_restored": ("Restored memories: {count}.", "已恢复 {count} 条记忆。"),
    "done_purged": ("Erased memories: {count}.", "已彻底清除 {count} 条记忆。"),
    "done_message_erased": (
        "The message was erased. Erased memories that came from it alone: {count}.",
        "消息已清除，并清除了仅来自它的 {count} 条记忆。",
    ),
    "done_message_gone": (
        "The message had been erased before; nothing was changed.",
        "该消息此前已被清除，未作任何改动。",
    ),
    "done_relation_corrected": ("The relation was corrected.", "关系已更正。"),
    "done_relation_removed": ("The relation was removed.", "关系已移除。"),
    "done_user_erased": (
        "The user was erased: {count} rows. Keys of this user alone were revoked.",
        "用户已清除，共 {count} 行数据。仅属于该用户的密钥已吊销。",
    ),
    # A relation.
    "correct": ("Correct relation", "更正关系"),
    "correct_hint": (
        "The messages that it comes from stay its sources.",
        "来源消息保持不变。",
    ),
    "relation_source": ("From", "起点"),
    "relationship": ("Relation", "关系"),
    "relation_destination": ("To", "终点"),
    "remove_relation": (
        "Remove the relation; it cannot be undone",
        "移除这条关系（无法撤销）",
    ),
    "also_says": (
        "These memories come from the same messages; correct them too if they are wrong:",
        "以下记忆来自相同的消息，如有错误也请一并更正：",
    ),
    # A user's data, and the log of changes.
    "user_data": ("User data", "用户数据"),
    "changes": ("Changes", "变更记录"),
    "changes_hint": (
        "Changes by people, applications and agents. A memory's own page has its texts.",
        "人员、应用和智能体所做的变更。内容前后对比见各条记忆的页面。",
    ),
    "show_deletion": ("Show or undo this deletion", "查看或撤销这次删除"),
    "rows_count": ("{count} rows", "{count} 项"),
    "action_update": ("Memory edited", "编辑记忆"),
    "action_merge": ("Memories merged", "合并记忆"),
    "action_delete": ("Memory deleted", "删除记忆"),
    "action_undo": ("Change undone", "撤销修改"),
    "action_purge": ("Memory erased", "清除记忆"),
    "action_delete_message": ("Message erased", "清除消息"),
    "action_correct_relation": ("Relation corrected", "更正关系"),
    "action_merge_entities": ("Names merged", "合并名称"),
    "action_split_entity": ("Names split", "拆分名称"),
    "action_export": ("User exported", "导出用户"),
    "action_import": ("Data imported", "导入数据"),
    "no_changes": ("No changes.", "暂无变更。"),
    "export_user": ("Export", "导出"),
    "export_hint": (
        "All data of the user as JSON lines, without vectors and recalls. "
        "`memrecall import` and the API read it.",
        "以 JSON 行导出该用户的全部数据（不含向量和回忆记录），"
        "可用 `memrecall import` 或 API 导入。",
    ),
    "ask_export_user": (
        "Export everything that is stored about {user}? The file contains private data.",
        "导出 {user} 的全部数据？文件包含隐私内容。",
    ),
    "erase_user": ("Erase user", "清除用户"),
    "erase_hint": (
        "Erases all messages, memories, relations and recalls of the user. It cannot be undone: "
        "export them first if they may be needed.",
        "清除该用户的全部消息、记忆、关系和回忆记录。此操作无法撤销，如有需要请先导出。",
    ),
    "ask_erase_user": (
        "Erase {user} for good? Type the user id to confirm.",
        "彻底清除 {user}？请输入用户 ID 以确认。",
    ),
    "other_id": ("This is not the id of the user.", "输入的不是该用户的 ID。"),
}
