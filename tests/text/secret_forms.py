"""Secrets as people write them, each with a mark around what must never be stored."""

KEY_BLOCK = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAA\n-----END OPENSSH PRIVATE KEY-----"
)
PUTTY_KEY = (
    "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: ann\nPublic-Lines: 1\n"
    "AAAAC3NzaC1lZDI1NTE5\nPrivate-Lines: 2\n§AAAAIBqWx8Vq2tYz4LmN7pQr\nS5uVw0xZ3aBcD6eF§"
    "\nPrivate-MAC: 5f3c"
)
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
# By kind: values stand between two marks, texts are separated by a bar.
FORMS = {
    "password": 'postgresql://ann:§hunter2§@db/x | export DB_PASSWORD="§s3cret-enough§"'
    " | password: §hunter22§ | my password is §hunter2§ | passwd: §correcthorsebattery§."
    " | 密码是 §abc12345§，别忘了 | 我的密码：§correcthorse§ | postgres://u:§p@ss1§@h/db"
    " | My password is §Pa$$w0rd123§. | (password: §Tr0ub4dor$9xyz§) | pwd=§a1,b2;c3!§;Port=1"
    " | password=§P@ss(word)1§; user=x | password=§abcdef1,ghijkl2§ | password: '§a1b2c3 d§' or so"
    " | 密码是§Abc123$$xyz789§，别忘了 | 密码是：“§我爱你520abc§” | 密码 §Abc@123456§"
    " | 密码改成了§Xy12345678§ | 账号admin密码§admin123§ | ｐａｓｓｗｏｒｄ：§Ａｂｃ１２３４５§"
    " | mysql -uroot -p§s3cr3t§ db | curl -u admin:§s3cr3t§ x.y | my passcode is §482193§"
    " | The password for Netflix is §Blue42sky§ | login: bob / password §Xy12345678§"
    " | REDIS_URL=redis://:§s3cr3tpw§@cache:6379/0 | jdbc:oracle:thin:scott/§t1gerpw§@//db:1521/x"
    " | 我的密碼是§Abc12345x§，別忘了 | 密碼：§correcthorse§ | the root pw is §hunter2x§."
    " | log in as admin / §Tr0ub4dor§ | use the guest wifi (pass §Blue42sky§) | pw: §Xy12345678§"
    " | root pw: §tiger§ | the root password is §correcthorse§. | Admin password: §swordfish§, ok?",
    "api key": "use §sk-proj-abcdefghijklmnopqrstuvwx§ now | §AKIAIOSFODNN7EXAMPLE§, right?"
    f" | §AIza{'Sy5' * 11}ab§ | §sk_live_{'4e' * 12}§ | §mr_0123456789abcdef_{'Ab-1' * 10}§"
    " | API_KEY=§abc123def456§ | API_KEY=§abcdefghijklmnop§ | api key: §abc123def456§"
    " | 密钥：§k3y-0f-mine§ | the secret key is §s3cr3tvalue§, ok?"
    f" | §gsk_{'a1' * 20}§ | §xai-{'a1' * 20}§ | §SG.{'a1' * 11}.{'a1' * 20}§"
    f" | AccountKey=§{'a1' * 20}==§;EndpointSuffix=x"
    " | STRIPE_KEY=§b7c8d9e0f1g2h3§ | export ENCRYPTION_KEY='§Zm9vYmFyMTIzNDU2§'"
    " | SIGNING_KEY: §q9w8e7r6t5y4§ | private_key=§0b9c2e4a-7d61-4f3b-9a58-1c2d3e4f5a6b§"
    " | 金鑰：§k3y0fmine§",
    "token": f"§ghp_{'a1' * 20}§ | §github_pat_{'a1' * 20}§ | it is §{TOKEN}§."
    f" | secret=§{'a1' * 99}§ | Authorization: Bearer §{'a1' * 12}§"
    f' | {{"client_secret": "§9f8e7d6c5b§"}}'
    f" | §ya29.{'a1' * 20}§ | §GOCSPX-{'a1' * 14}§ | §shpat_{'a1' * 16}§ | §whsec_{'a1' * 16}§"
    f" | §123456789:AAH{'a1' * 16}§ | hooks.slack.com/services/§T0/B0/{'X' * 24}§"
    f" | https://x.blob.core.windows.net/c/f?sv=2024-01-01&sp=r&sig=§{'aB3%2F' * 8}%3D§"
    f" | <a href='https://x.blob.core.windows.net/c?sv=2024&amp;sig=§{'cD4%2B' * 8}%3D§'>x</a>"
    ' | {"auths": {"ghcr.io": {"auth": "§YW5uOmh1bnRlcjItc2VjcmV0§"}}}',
    "private key": f"§AGE-SECRET-KEY-1{'QZ7' * 19}L§ | key: §AGE-SECRET-KEY-1{'X8K' * 19}M§!"
    f" | §age-secret-key-1{'zw6' * 19}l§ | §{KEY_BLOCK}§ | {PUTTY_KEY}",
    "bank account number": "my IBAN is §DE89 3704 0044 0532 0130 00§, ok?"
    " | §GB82WEST12345698765432§ | NL: §NL91 ABNA 0417 1643 00§ BIC ABNANL2A",
    "social security number": "SSN §219-09-9999§ | my social is §457-55-5462§."
    " | SSN: §457555461§ | My SSN is §457 55 5463§. | Social Security No. §457-55-5464§, please"
    " | §457-55-5465§ is her social security number | 我的社会安全号是§457555466§",
}
