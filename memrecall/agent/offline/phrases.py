"""Texts of the rules in English and Chinese: thoughts, summaries and questions."""

from functools import partial

from memrecall.text.language import fill_phrase

_PHRASES: dict[str, tuple[str, str]] = {
    # Thoughts
    "first": (
        "I search for what the message mentions: {words}.",
        "先搜索消息里提到的内容：{words}。",
    ),
    "first_context": (
        "The message names nothing specific; I search with what was said before it: {words}.",
        "消息本身没有说出具体内容，用前面的对话来搜索：{words}。",
    ),
    "is_stored": (
        "What is meant is in this conversation; I check whether it is stored too.",
        "所指内容就在当前对话中，看看是否也有存储。",
    ),
    "words_only": (
        "Semantic search failed; I search by keywords only.",
        "语义搜索不可用，改用关键词搜索。",
    ),
    "read": (
        "I read the best matches and what was said around them.",
        "阅读最相关的内容及其前后文。",
    ),
    "expand": (
        "“{reference}” refers to something before this window; I request earlier messages.",
        "“{reference}”指的内容不在当前窗口里，请求查看更早的消息。",
    ),
    "finish": ("I hand off what was found.", "交接找到的内容。"),
    "give_up": ("Nothing matches; I say so and ask.", "没有合适的内容，如实说明并追问。"),
    # Reasons
    "found": ("relevant results found: {count}", "找到 {count} 条相关内容"),
    "not_found": ("nothing relevant was found", "没有找到相关内容"),
    "failed": ("the search failed", "搜索失败"),
    "unsearched": ("no further search was possible", "无法继续搜索"),
    "in_window": ("what is meant is in the conversation itself", "所指内容就在当前对话中"),
    "nothing_asked": ("the message refers to nothing earlier", "消息没有提及需要回忆的内容"),
    # Summaries
    "summary_found": (
        "Matches for “{asked}”, most likely first:",
        "针对“{asked}”，以下内容最相关（按可能性排序）：",
    ),
    "quote": ("- {when}, {who}: “{text}”", "- {when}，{who}：“{text}”"),
    "outdated": (
        "- Outdated since {since}: {when}, {who}: “{text}”",
        "- 自 {since} 起已过时：{when}，{who}：“{text}”",
    ),
    "summary_not_found": (
        "Nothing relevant to “{asked}” was found. Searched for: {queries}.",
        "没有找到与“{asked}”相符的内容。搜索过：{queries}。",
    ),
    "closest": (
        "The closest match, which is probably not meant: {when}, {who}: “{text}”",
        "最接近但看来不是所指的：{when}，{who}：“{text}”",
    ),
    "summary_unsearched": (
        "No search was possible. This does not mean that nothing is stored.",
        "未能搜索。这不表示没有相关内容。",
    ),
    "summary_limited": (
        "The limit on {limit} allowed no search. This does not mean that nothing is stored.",
        "受{limit}所限，未能搜索。这不表示没有相关内容。",
    ),
    "partly_failed": (
        "Some searches failed ({codes}): there may be more.",
        "部分搜索失败（{codes}），可能还有更多内容。",
    ),
    "summary_in_window": (
        "Nothing needs to be recalled: what is meant was said in this conversation. "
        "{who}: “{text}”",
        "无需回忆：所指内容就在当前对话中。{who}：“{text}”",
    ),
    "summary_nothing_asked": (
        "The message does not refer to anything earlier.",
        "这条消息没有提及以前的内容。",
    ),
    # Reasoning
    "why": (
        "They share {words} with the request; best relevance {score:.2f} after {searches}.",
        "与请求共有：{words}；共搜索 {searches}，最高相关性 {score:.2f}。",
    ),
    "why_meaning": (
        "They are close in meaning; best relevance {score:.2f} after {searches}.",
        "意思相近；共搜索 {searches}，最高相关性 {score:.2f}。",
    ),
    "why_not": (
        "Even the best of {count} results matches too little of the request.",
        "{count} 条结果中最好的也与所问内容相差太远。",
    ),
    "once": ("1 search", "1 次"),
    "times": ("{count} searches", "{count} 次"),
    # Questions
    "summary_withheld": (
        "Nothing that may be shown matches “{asked}”. Searched for: {queries}.",
        "可以显示的内容中没有与“{asked}”相符的。搜索过：{queries}。",
    ),
    "ask_withheld": (
        "What matches may not be shown here. Is there something else to look for?",
        "相符的内容在这里无权显示。是否需要查找其他内容？",
    ),
    "ask_bare": (
        "What does “{reference}” refer to: roughly when was it, or what was it about?",
        "“{reference}”具体指什么？大概是什么时间或什么主题？",
    ),
    "ask_words": (
        "I found nothing about {words}. When was it, or what other words might have been used?",
        "没有找到关于{words}的内容。大概是什么时候，或者当时是怎么说的？",
    ),
    "ask_time": (
        "I found nothing about {words} for {when}. Could it have been another time?",
        "{when}没有找到关于{words}的内容。会不会是别的时间？",
    ),
    # Parts
    "user": ("the user", "用户"),
    "assistant": ("the assistant", "助手"),
    "somebody": ("somebody", "某人"),
    "memory": ("remembered", "记忆"),
    "knowledge": ("knowledge base", "知识库"),
    "and": (", ", "、"),
    "this": ("this", "这件事"),
}


explain = partial(fill_phrase, _PHRASES)
