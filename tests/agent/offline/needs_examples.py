"""Messages that may need a recall and messages that cannot, made up, in both languages."""

NEEDED = """
What did I say about the budget?
Do it like last time
What is the capital of France?
I went to the park today
Book a table for two
continue
yes
fix the failing test
Thanks, and which one did I pick?
thanks for the tip last time
hi, any news from Nora
Translate the following into German: We talked about it last time.
Traceback (most recent call last): KeyError
You are a helpful assistant. Answer the question using the context.
Call Bob (the plumber)
print(x) fails, how did we fix it?
```\\nprint(1)\\n```\\nWhat does this do?
{"port": 5433, "note": "what did I say?"}
上次方案
那个东西
我叫什么名字
法国的首都是哪里
我今天去了公园
红烧肉怎么做
继续
可以
谢谢你上次的建议
你好，帮我订个位子
好吗
我喜欢(红色)
```\\n代码\\n```\\n这段代码有什么问题
"""

NOT_NEEDED = """
Hi
hello there!
Good morning
hey, how are you?
Thanks a lot!
thank you so much
ok
OK, thanks!
sure, sounds good
got it
Bye!
👍
...
```python\\nprint(last_time)\\n```
def f(x):\\n    return x + 1\\n
SELECT * FROM users WHERE id = 3;
{"role":"user","content":"as before"}
[{"id": 1, "text": "as before"}, {"id": 2}]
<html><body><p>you said so</p></body></html>
你好
大家好
早上好！
在吗？
你好呀，最近怎么样？
谢谢
好的，谢谢你！
辛苦了
好的
嗯嗯
收到，没问题
知道了
再见
```\\n上次的代码\\n```
{"message":"上次的方案"}
"""
