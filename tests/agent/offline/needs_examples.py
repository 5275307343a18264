"""Messages that need a recall and messages that do not, made up, in both languages."""

NEEDED_EN = """
What did I say about the budget?
Do it like last time
the same as before please
Can you remind me what we decided about the logo?
When is my wife's birthday?
What's my name?
Where do I live?
What was the name of that restaurant we liked?
Which laptop did I end up buying?
Continue the story from last week
Use my usual settings
the one you recommended
Did I tell you about my trip?
Have we talked about this before?
What did you suggest for the garden?
as we discussed, send the report
my previous address
What do I usually order?
Am I allergic to anything?
How many times did I mention the leak?
What did I eat yesterday?
What foods can't I eat?
pick up where we left off
that thing I asked you to do
Who was the plumber you found for me?
yesterday's shopping list
last meeting's notes
Is my passport still valid?
What do you know about me?
recommend a book for me
What should I cook tonight?
How old is my daughter?
I told you which font I like, use it
Make another one like the previous
Do I like spicy food?
what was our plan for Sunday?
Where did we park?
Which hotel did we stay at in May?
continue
What size shoes do I wear?
You mentioned a podcast, which one was it?
Send it to the same address as last time
What's the wifi password I gave you?
Who did I say was coming to dinner?
I can't remember what we called the new branch
Was I going to cancel that subscription?
Format it as usual
Let's go back to the earlier version
When did we last talk about the roof?
What was my score on the second test?
Which of my cousins lives in Lyon?
How long have I been taking these pills?
Please apply the rules we agreed on
the recipe you gave me, but for six people
Do you remember the joke about the penguin?
Any news on the ticket I asked you about earlier?
What is my dog called?
Which day did I book the dentist for?
my old phone number
Where is my spare key?
Has my contract been renewed?
What did we name the cat in the story?
"""

NOT_NEEDED_EN = """
Hi
hello there!
Thanks a lot!
ok
What is the capital of France?
What's 17 * 23?
Explain how TCP works
Write a haiku about rain
Translate the following into German: We talked about it last time and I said no.
{"role":"user","content":"what did I say before"}
Traceback (most recent call last):\\n  File "a.py", line 3, in <module>\\nKeyError: 'x'
2026-01-01 10:00:00 INFO started\\n2026-01-01 10:00:01 ERROR failed again
You are a helpful assistant. Answer the question using the context.
<tool_result>done before</tool_result>
How do I install numpy?
Who won the last World Cup?
What happened in 1945?
Is it safe to eat raw eggs?
convert 10 miles to km
How can I center a div?
Write a function that reverses a list
What time is it in Tokyo?
Remember to call the bank at 5
Are these two numbers the same?
Tell me a joke
Good morning
Summarize this article: Last week the parliament voted again on the bill that was discussed before.
def f(x):\\n    return x + 1\\n
Sort these: 3, 1, 2
What does idempotent mean?
I went to the park today
Please respond only with JSON.
Give me five names for a cat
Why is the sky blue?
SELECT * FROM users WHERE id = 3;
What should a CV contain?
How many planets are there?
Write an email to a landlord about a broken heater
What is the difference between a list and a tuple?
sure, sounds good
Bye!
List the prime numbers below 30
Who wrote Hamlet?
Make a table of the seven largest deserts
How does photosynthesis work?
Is Pluto a planet?
```python\\nprint(last_time)\\n```
[{"id": 1, "text": "as before"}, {"id": 2}]
<html><body><p>you said so</p></body></html>
### Instruction\\nContinue the text.\\n### Input\\nWe met again last week.
Proofread this: we discussed it before and you told me to wait
What are the symptoms of a cold?
Generate a random password of 12 characters
Draw an ASCII cat
How far is the moon?
Compare REST and GraphQL
What is the boiling point of water?
Name three French painters
How do you say thank you in Japanese?
Which is larger, 3/4 or 5/8?
Give me a regex for e-mail addresses
"""

NEEDED_ZH = """
上次方案
那个东西
按照我之前的数据库配置来
上次说的那个方案
我之前让你做的那个东西
继续上次的话题
我老婆的生日是几号
我叫什么名字
我住在哪里
你还记得我喜欢喝什么吗
我对什么过敏
我们上周讨论了什么
昨天我说了什么
你给我推荐的那家餐厅
像上次一样处理
老样子
我说过要换工作吗
我去过哪些城市
是不是说过我不吃辣
上周三的会议纪要
咱们定的时间是几点
你之前说的方法再讲一遍
我的护照号是多少
我的车牌号是什么
那本书叫什么来着
用哪个端口来着？
火锅要什么汤来着
我以前用的是哪个版本
给我推荐一本书
我今晚吃什么
我不能吃什么
我吃什么会过敏
我应该送什么礼物
继续
接着说
我平时几点起床
我喜欢什么颜色
我女儿多大了
按老规矩办
昨天聊的内容
我们第一次见面是什么时候
你知道我住哪吗
之前的配置
以前聊过的那部电影
还是按原来说好的来
我最近买过什么
把那份合同发我
上回那家店
我有没有提过他的电话
你上次给我的清单还在吗
我家的网费多少钱
之前讨论过的名字有哪些
照旧
我什么时候去的医院
那次旅行花了多少
我记得你推荐过一首歌
上个月我们定的目标是什么
我不记得那个密码了
帮我找一下之前存的地址
跟往常一样发给他们
我的医生叫什么
我妈的电话是多少
前几天说的那件事怎么样了
你答应过的周报呢
我们聊过几次搬家
"""

NOT_NEEDED_ZH = """
你好
谢谢
好的
早上好！
法国的首都是哪里
17乘以23等于多少
解释一下TCP协议
写一首关于雨的诗
把下面这段话翻译成英文：我们上次说过这件事，之前也讨论过。
{"message":"上次的方案"}
怎么安装numpy
1945年发生了什么
2026-01-01 10:00:00 ERROR 上次失败
你是一个专业的翻译助手，请严格按照以下格式输出
如何把列表反转
今天天气怎么样
那个，请问怎么注册账号
出发之前要准备什么
睡觉以前能喝咖啡吗
记得提醒我五点开会
讲个笑话
什么是幂等
给五个猫的名字
天空为什么是蓝色的
水的沸点是多少
帮我写一个排序函数
总结以下内容：上周公司宣布了之前的计划
十公里等于多少英里
光速是多少
嗯
我今天去了公园
红烧肉怎么做
哪个国家人口最多
请用Python实现快速排序
计算 3+5*2
成语“画蛇添足”是什么意思
如何写好简历
谁发明了电话
北京到上海多远
辛苦了
再见
收到，没问题
太阳系有几颗行星
写一封请假邮件
鸡蛋煮几分钟
解方程 x^2=4
<xml><item>之前的内容</item></xml>
```\\n上次的代码\\n```
只返回JSON，不要解释
列出三十以内的质数
什么是机器学习
感冒有什么症状
月亮离地球多远
比较一下两种排序算法
日语的谢谢怎么说
润色这段话：我之前跟他说过上次的事
Exception in thread "main" java.lang.Error\\n\\tat a.B.run(B.java:12)\\n\\tat a.C.go(C.java:3)
把100美元换算成人民币
苹果和梨哪个热量高
生成一个十二位的随机密码
饭前还是饭后吃药
"""
