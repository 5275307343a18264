"""Messages without facts, and messages with facts that the rules miss."""

from memrecall.agent.prompt_view import wrap_block

from .transcripts import parse_turns

NO_FACTS = {
    "greeting": parse_turns("Hi there!", "Good morning", "你好呀", "早上好！", "哈喽"),
    "thanks": parse_turns(
        "Thanks a lot!", "Thank you, that helps.", "谢谢！", "太感谢了", "辛苦啦"
    ),
    "small talk": parse_turns(
        "haha nice", "lol ok that makes sense", "哈哈哈", "好嘞", "嗯嗯", "今天天气不错"
    ),
    "questions": parse_turns(
        "Do you like sushi?",
        "Where do I live?",
        "What is my name?",
        "Am I allergic to anything?",
        "Did I tell you that I moved to Rome?",
        "I live in Berlin, right?",
        "你喜欢什么？",
        "我住在哪里？",
        "我对什么过敏？",
        "我住在北京，对吗？",
        "我是不是搬到上海了？",
    ),
    "hypotheticals": parse_turns(
        "If I lived in Rome, I would eat pasta every day.",
        "Suppose I am vegan.",
        "Imagine I have three dogs.",
        "I wish I had a dog.",
        "I might move to Spain.",
        "Maybe I'm allergic to cats.",
        "如果我住在罗马，我会天天吃意面。",
        "假设我是医生。",
        "要是我有一只猫就好了。",
        "我可能会搬家。",
    ),
    "quotations": parse_turns(
        '"I live in Rome," he said.',
        "She told me I'm lazy.",
        'The song goes "I love you and I live for you".',
        "> I work at Google and I live in Paris.",
        "他说我很懒。",
        "书上写着“我喜欢一个人旅行，住在海边”。",
        "我听说他搬家了。",
    ),
    "requests": parse_turns(
        "Can you help me write an email?",
        "I want to know what time it is.",
        "I'd like a recipe for lasagna.",
        "Please summarise the article.",
        "I need help with my homework.",
        "Give me three ideas.",
        "帮我写一首诗",
        "我想问一下天气。",
        "给我推荐几本书",
        "请解释一下量子力学",
    ),
    "tasks on given texts": parse_turns(
        "Translate this: I live in Rome and love cats.",
        "Summarise this email:\nHi, I am moving to Denver in August. Karen",
        "帮我翻译成英文：我叫王芳，今年三十岁，住在青岛。",
        "润色一下：我喜欢编程，我在腾讯上班。",
    ),
    "the assistant": parse_turns(
        "assistant| You like sushi. I suggest that you move to Berlin.",
        "assistant| I live in the cloud and my name is Max.",
        "assistant| 您对芒果过敏，住在厦门。",
        "system| User's name is Bob. 用户喜欢编程。",
    ),
    "tools": parse_turns(
        "tool| I live in Rome.", 'tool| {"text": "My name is Bob."}', "tool| 我叫李明。"
    ),
    "recalled memories": parse_turns(
        wrap_block(['{"memory_key": "k1", "content": "User lives in Rome. My name is Bob."}']),
        wrap_block(["我叫李明，住在上海。"]),
        "<recalled_memories>\nI live in Rome.",
    ),
    "code and data": parse_turns(
        "```python\n# I live in Rome and my name is Marco\n```",
        '{"name": "I live in Rome"}',
        "2026-03-10 12:00:00 INFO I live in Rome",
        'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: I live in Rome',
        "<note>I live in Rome.</note>",
    ),
    "moods of the moment": parse_turns(
        "I'm so tired today.", "I have a headache.", "I got it.", "I see.", "I think so.", "我好累"
    ),
    "promises in passing": parse_turns(
        "I'll try that.", "I'll let you know.", "I will send it to you.", "我先去试试", "我这就去"
    ),
    "what was just shown": parse_turns(
        "I love it!",
        "I like that idea.",
        "I really like your plan.",
        "我喜欢这个",
        "我喜欢你的建议",
    ),
    "about the other": parse_turns(
        "You are vegan.", "You live in Rome.", "你是北京人。", "你喜欢喝茶。"
    ),
    "remarks that look like more": parse_turns(
        "Monday works for me.",
        "Always a pleasure!",
        "Never again!",
        "Nothing beats the first answer.",
        "The noise keeps me awake right now.",
        "In the novel, my parents live in a castle.",
        "I ran the tests and two of them fail.",
        "We ended up using too much memory.",
        "I'd prefer the second option.",
        "I live on the moon, just kidding.",
        "换成蓝色的。",
        "房东姓欧阳，就住楼下。",
        "收到邮件了。",
        "我只看了第一页。",
        "大家都叫我快点。",
        "我妈和我爸谁对？",
        "我爸说今天会下雨。",
        "我不会用这个功能。",
        "比起这个我更喜欢那个。",
        "我住在火星，开玩笑的。",
    ),
    "nothing": parse_turns("", "   ", "\n\n", "…", "???", "👍"),
}
"""Conversations that give nothing, by why."""

MISSED = [
    ("I have three sisters. The youngest, Ruth, lives with us.", "Ruth"),
    ("I left my job last month and I'm taking a year off.", "year off"),
    ("Sam and Bob like pizza.", "pizza"),
    ("I could eat ramen every single day.", "ramen"),
    ("Coffee? Never touch the stuff.", "coffee"),
    ("We've put an offer in on a cottage near Bath.", "cottage"),
    ("我报了个陶艺班，下周开课。", "2026"),
    ("医生上周给我开了降压药。", "降压药"),
    ("我老板让我周四前交报告。", "报告"),
    ("我在昆明长大，十二岁搬到北京。", "北京"),
    ("我有两个孩子，大的上小学三年级。", "三年级"),
    ("我闺蜜下个月结婚，我要当伴娘。", "伴娘"),
    ("香菜这东西我是碰都不碰。", "香菜"),
    ("My sister and her husband just had a baby boy.", "baby"),
    ("The doctor says I have high blood pressure.", "blood pressure"),
    ("I'm in bed by ten most nights.", "ten"),
    ("我女儿今年中考。", "中考"),
    ("我牛排要七分熟。", "七分熟"),
    ("我95年的。", "95"),
    ("我膝盖受伤后就不踢足球了。", "不踢足球"),
]
"""Messages with a fact that the rules do not find yet, and a word of it."""
