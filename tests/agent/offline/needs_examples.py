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

# By an author who had not read the rules.
NEEDED_BY_AN_AUTHOR = """
what did i say i was getting mum for her birthday
book idea for me, you know my taste
我那个过敏的东西是啥来着
draft a text to my landlord about the thing from last week
给我老婆写张生日卡,要提到我们怎么认识的
dinner ideas but nothing i cant eat
接着上次那个方案往下写
put my usual sign off on this email
我上回面试那家公司叫什么
plan me a run for tomorrow, mind the knee
周末带孩子去哪玩,按他那个年纪来
carry on with the story where we left off
还是老样子,帮我点个咖啡的备注
the wifi name i came up with, the rude one
我牙医约的几点
which of the three flats did i like best in the end
给我推荐个离我家近的健身房
fill in the form for me: name, address, next of kin
我对象爱吃的那家店叫什么名字
is this jacket my size? it says 40 regular
帮我写个自我介绍,明天新部门要用
how's my savings goal looking, i put away another 200 today
上次你教我的那个治打嗝的办法
gift for my sister, shes impossible, you know what shes like
我家猫该打疫苗了没
i've got a day off, suggest something id actually enjoy
按我的口味来一份一周菜单
when do i need to leave for my flight
那本书我看到第几章了
same recipe as last time but for six people
离我交房租还有几天
what was the name of that guy from the conference, the one with the drones
我爸的手机号发我一下
write a bio for my work profile, two lines
我之前说想学的那个乐器,给个入门计划
今年给我妈送点啥,去年那个别重复
translate this into the language im learning: where is the library
咱们给那个项目起的名字是哪个
tell me if any of these lunch spots work for me: the sushi place, the steakhouse, the falafel van
帮我算算我还有多少天生日
"""
