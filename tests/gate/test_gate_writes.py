"""Writes: the level by extension, by what the file is for, and by what the content holds."""

import pytest

from byleave.gate import MASK_PREFIX, Gate, RiskAssessor, secret_globs, secret_name
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.protocol.verdicts import Verdict

pytestmark = pytest.mark.promise("T2", "G5")

GATE = Gate()


def write(path: str, content: str = "x", mode: str = "write") -> Verdict:
    return GATE.judge("write_file", {"path": path, "content": content, "mode": mode}).verdict


@pytest.mark.parametrize("extension", ["txt", "md", "json", "py", "js", "ts", "jsx", "tsx", "TXT", "Py"])
def test_text_of_the_named_extensions_is_medium(extension: str) -> None:
    assert write(f"src/file.{extension}").level == "MEDIUM"


@pytest.mark.parametrize(
    "path",
    ["a.sh", "a.conf", "a.yml", "a.html", "a.css", "a", "LICENSE", ".txt", ".md", "a.txt~", "a.c", "a.rs", "a.mjs"],
)
def test_every_other_extension_is_high(path: str) -> None:
    assert write(path).level == "HIGH"


@pytest.mark.parametrize(
    "path",
    [
        "a.exe",
        "a.bin",
        "a.so",
        "a.so.1.2",
        "a.dll",
        "a.dylib",
        "a.sys",
        "A.EXE",
        "a.ExE",
        "x/a.com",
        "a.pyc",
        "a.jar",
        "a.o",
        "a.wasm",
        "a.node",
        "a.class",
        "a.\uff45\uff58\uff45",
    ],
)
def test_program_file_is_refused(path: str) -> None:
    assert write(path).refused


@pytest.mark.parametrize("path", ["a.exe.txt", "notes.so.md", "exe.py", "so.json"])
def test_only_the_last_extension_counts(path: str) -> None:
    assert write(path).level == "MEDIUM"


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".GIT/config",
        "sub/.git/hooks/x",
        ".git",
        "a/../.git/x",
        ".byleave/policy.toml",
        ".Byleave/x.json",
        "/home/u/ws/.git/config",
    ],
)
@pytest.mark.promise("S")
def test_protected_file_is_refused(path: str) -> None:
    call = {"path": path, "content": ""}
    assert GATE.judge("write_file", call, workspace="/home/u/ws").verdict.refused


@pytest.mark.parametrize(
    "path",
    [
        ".vscode/settings.json",
        ".vscode/tasks.json",
        ".VSCode/settings.json",
        ".idea/x.json",
        "package.json",
        "app/package.json",
        "Makefile",
        "conftest.py",
        "tests/conftest.py",
        "sitecustomize.py",
        ".npmrc",
        ".envrc",
        ".husky/pre-commit.js",
        ".github/workflows/ci.json",
        ".mcp.json",
        ".claude/settings.json",
        "CLAUDE.md",
        "AGENTS.md",
        ".cursor/mcp.json",
        ".gitattributes",
        ".gitmodules",
        ".bashrc",
        "setup.py",
        "vite.config.ts",
        "node_modules/x/index.js",
        ".venv/lib/x.py",
        "CMakeLists.txt",
        ".github/copilot-instructions.md",
        "nodemon.json",
        ".gitlab-ci.yml",
        "gulpfile.js",
        "gulpfile.babel.js",
        "hatch_build.py",
        "jest.config.json",
        "simple-git-hooks.json",
        ".eslintrc.js",
        ".env",
        ".ssh/config.txt",
        ".dependency-cruiser.js",
        "app/.size-limit.cjs",
        ".syncpackrc.mjs",
        ".anything.ts",
        ".fixtures.py",
        ".Brew.RB",
        "vitest.workspace.ts",
        "docs/.vitepress/config.mts",
        "docs/.vitepress/config/index.ts",
        ".rubocop.yml",
        ".markdownlint-cli2.jsonc",
        ".devcontainer/devcontainer.json",
    ],
)
def test_file_that_something_executes_or_trusts_is_high_with_a_warning(path: str) -> None:
    verdict = write(path)
    assert verdict.level == "HIGH"
    assert verdict.findings[0].rule == "write.trusted"
    assert verdict.always_asks
    assert verdict.findings[0].reason.endswith(".")


RUN_OR_OBEYED = {
    "the spec's own": ".vscode/x .idea/x package.json Makefile conftest.py .npmrc .envrc .husky/x .mcp.json",
    "continuous integration": """
        .github/workflows/ci.yml .gitlab-ci.yml azure-pipelines.yml .azure-pipelines/x.yml Jenkinsfile
        Jenkinsfile.prod .circleci/config.yml .travis.yml .drone.yml .buildkite/pipeline.yml
        bitbucket-pipelines.yml .semaphore/x.yml .cirrus.yml appveyor.yml .woodpecker.yml
        .gitea/workflows/x.yml .tekton/x.yaml codemagic.yaml bitrise.yml .builds/x.yml action.yml
        .github/dependabot.yml .renovaterc.json CODEOWNERS .readthedocs.yaml .goreleaser.yml .build.yml .releaserc.yaml
    """,
    "agents": """
        CLAUDE.md AGENTS.md AGENT.md GEMINI.md QWEN.md WARP.md .claude/settings.json .claude.json
        .cursor/rules/x.mdc .cursorrules .cursorignore .github/copilot-instructions.md .github/prompts/x.md
        .github/agents/x.md .aider.conf.yml .aiderignore .continue/config.json .windsurf/rules/x.md
        .clinerules .clinerules/x.md .roo/rules/x.md .kilocode/x.json .trae/rules/x.md .codex/config.toml
        .gemini/settings.json .amp/settings.json .openhands/setup.sh .kiro/steering/x.md
        .junie/guidelines.md opencode.json crush.json mcp.json .zed/settings.json .agent/rules/x.md .grok/settings.json
        .zencoder/rules/x.md .codebuddy/x.md .lingma/rules/x.md .pi/settings.json .github/hooks/x.json
        .github/skills/x/notes.md
    """,
    "packages": """
        package-lock.json yarn.lock pnpm-lock.yaml requirements.txt requirements-dev.txt constraints.txt
        dev-requirements.txt
        Pipfile pyproject.toml setup.cfg Gemfile Cargo.toml .cargo/config.toml go.mod composer.json pom.xml
        .mvn/extensions.xml .yarnrc.yml .pnpmfile.cjs pnpm-workspace.yaml lerna.json nx.json turbo.json
        deno.json bunfig.toml nuget.config
    """,
    "builds and tests": """
        setup.py tox.ini noxfile.py Dockerfile Dockerfile.dev api.Dockerfile docker-compose.yml
        docker-compose.override.yml compose.prod.yaml Rakefile lib/tasks/x.rake build.gradle
        settings.gradle.kts gradlew mvnw CMakeLists.txt x.cmake build.rs webpack.config.js vite.config.ts
        jest.config.js jest.setup.js setupTests.ts babel.config.js .babelrc .babelrc.json .eslintrc.json
        .eslintrc eslint.config.mjs .prettierrc.json .stylelintrc.json rollup.config.js gulpfile.js
        Gruntfile.js .mocharc.json .nycrc .storybook/main.js cypress.json truffle-config.js pytest.ini
        Procfile.dev webpack.prod.js hatch.toml tox.toml pixi.toml .bazelrc .air.toml pylintrc pytest.toml
        mypy.ini .flake8 gunicorn.conf.py Justfile Taskfile.yml flake.nix mix.exs build.zig x.csproj x.sln
        Makefile.toml Taskfile.dist.yml Cross.toml Trunk.toml Anchor.toml bacon.toml mkdocs.yml docs/conf.py
        docs/source/conf.py turbo.jsonc knexfile.cjs ormconfig.yml Gruntfile.ts codegen.yaml moon.yml .moon/tasks.yml
        .textlintrc.json .remarkrc.json .taprc.yml brunch-config.js tauri.conf.json5 electron-builder.yml wails.json
        x.nimble global-setup.ts globalTeardown.ts features/environment.py alembic/env.py locustfile.py
        jupyter_server_config.py RoboFile.php rector.php
    """,
    "python's start": "sitecustomize.py usercustomize.py x.pth lib/x.PTH",
    "git": ".gitattributes .gitmodules .gitconfig .githooks/pre-commit .pre-commit-config.yaml lefthook.yml "
    "lefthook-local.yml .lintstagedrc.yml .lefthook/pre-commit/x",
    "shells and services": """
        .bashrc .zshrc .profile .ssh/authorized_keys crontab cron.d/x x.service x.timer x.socket .config/x
        .env .env.local .flaskenv .vimrc .nvim.lua .gdbinit .Rprofile .ipython/profile_default/startup/x.py
        .htaccess .envrc.local mise.local.toml
    """,
    "deployment": "main.tf main.tf.json cdk.json serverless.yml ansible.cfg playbook.yml firebase.json Chart.yaml "
    "cdktf.json devspace.yaml okteto.yml dbt_project.yml Pulumi.dev.yaml",
    "editors": """
        .devcontainer/devcontainer.json x.code-workspace .editorconfig .gitpod.yml .replit .fleet/run.json
        Properties/launchSettings.json .theia/settings.json .ycm_extra_conf.py .vimspector.json .helix/languages.toml
    """,
    "installed code": "node_modules/x/index.js .venv/lib/x.py lib/python3.11/site-packages/x.py",
}


@pytest.mark.parametrize("path", [path for paths in RUN_OR_OBEYED.values() for path in paths.split()])
def test_what_runs_or_is_obeyed_later_is_high_however_it_is_spelled(path: str) -> None:
    first, _, rest = path.rpartition("/")
    wide = f"{first}/{chr(ord(rest[0]) + 0xFEE0)}{rest[1:]}".lstrip("/")  # the same letter in its full-width form
    for spelling in (path, path.upper(), f"deep/{path}", f"{path} ", f"{path}.", f"{path}. .", f"{path}::$DATA", wide):
        findings = RiskAssessor().assess_write(spelling, "x")
        assert (findings[0].level, findings[0].rule, findings[0].always_asks) == ("HIGH", "write.trusted", True), (
            spelling
        )


ORDINARY = """
    README.md docs/guide.md CHANGELOG.md src/app.py src/app.ts src/components/Button.tsx src/hooks/useToken.ts
    config.json data/users.json src/workflows/run.py makefile.py docs/github.md docs/claude.txt
    notes/agents.txt src/agents/agent.py package_json.md tsconfig.json src/settings.json src/config/index.js
    tests/test_app.py app/models.py src/package.py locales/en.json public/manifest.json
    fixtures/requirements.json docs/docker.md src/build/main.ts src/rules.py src/profile.ts src/makefile.ts
    docs/.vitepress/theme/index.ts types/a.d.ts .hidden/a.py
    templates/template.json schema.json robots.txt env.py src/environment.ts src/conf.py src/agent/run.py
    .github/notes.md src/global/setup.ts
"""


@pytest.mark.parametrize("path", ORDINARY.split())
def test_ordinary_text_stays_medium_and_is_not_warned_of(path: str) -> None:
    assert [(finding.level, finding.rule) for finding in RiskAssessor().assess_write(path, "x")] == [
        ("MEDIUM", "write.text")
    ]


@pytest.mark.parametrize("path", ["a.sh", "tools/run.PS1", "x.bat", "index.php", "a.mjs"])
def test_script_is_called_one(path: str) -> None:
    assert "script: whoever runs it next" in write(path).findings[0].reason


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    "path",
    [".git", ".GIT/config", ".git./config", ".git /x", "git~1/config", ".git::$INDEX_ALLOCATION/x", "\uff0egit/x"],
)
def test_repository_files_are_refused_however_they_are_spelled(path: str) -> None:
    assert RiskAssessor().assess_write(path, "x")[0].level == "REFUSE"


@pytest.mark.parametrize("path", ["src/app.py", "config.json", "docs/github.md", "src/workflows/run.py", "makefile.py"])
def test_ordinary_source_is_not_taken_for_a_trusted_file(path: str) -> None:
    assert write(path).level == "MEDIUM"


def test_append_is_judged_like_write() -> None:
    assert write("a.py", mode="append").level == "MEDIUM"
    assert write(".git/config", mode="append").refused


def test_content_with_our_own_mask_is_high() -> None:
    verdict = write("a.json", f'{{"token": "{MASK_PREFIX}token]"}}')
    assert verdict.level == "HIGH"
    assert "replace the real secret" in verdict.findings[0].reason


def test_content_with_nul_bytes_is_high() -> None:
    assert write("a.txt", "a\0b").level == "HIGH"


@pytest.mark.promise("G4")
def test_content_over_the_limit_is_refused_by_bytes_not_characters() -> None:
    assert write("a.txt", "a" * MAX_FILE_BYTES).level == "MEDIUM"
    for content in ("a" * (MAX_FILE_BYTES + 1), "€" * (MAX_FILE_BYTES // 3 + 1)):
        verdict = write("a.txt", content)
        assert verdict.refused
        assert verdict.error_type == "invalid"
        assert "content" in verdict.message


def test_assessor_answers_for_a_path_by_itself() -> None:
    assert RiskAssessor().assess_write("a.md", "")[0].level == "MEDIUM"


@pytest.mark.promise("T1")
@pytest.mark.parametrize(
    ("path", "secret"),
    [
        (".env", True),
        (".env.local", True),
        ("app/.env.production", True),
        ("prod.env", True),
        ("a.pem", True),
        ("server.key", True),
        ("id_rsa", True),
        (".ssh/config", True),
        (".netrc", True),
        (".npmrc", True),
        ("credentials", True),
        (".aws/credentials", True),
        ("config/credentials.json", True),
        ("secrets.yaml", True),
        ("SECRETS.YAML", True),
        ("service-account-x.json", True),
        ("terraform.tfvars", True),
        (".ENV", True),
        ("pa\u00dfwords.txt", True),
        (".pa\u00dfword-store/x", True),
        ("\u24d2redentials", True),
        ("\u1e9e.key", True),
        ("tokens.json", True),
        ("auth/tokens.json", True),
        ("src/theme/tokens.json", False),
        ("packages/Design-Tokens/tokens.json", False),
        ("locales/de/tokens.json", False),
        (".ssh/theme/tokens.json", True),
        # Copies that editors and people leave behind hold what the file held.
        ("server.key.bak", True),
        ("certs/server.pem~", True),
        ("id_rsa~", True),
        (".id_rsa.swp", True),
        ("#id_rsa#", True),
        (".npmrc.bak", True),
        (".netrc.old", True),
        ("secrets.json.bak", True),
        (".git-credentials.orig~", True),
        ("secrets.production.yaml", True),
        ("credentials.local.json", True),
        ("api-keys.txt", True),
        ("prod.tfstate", True),
        ("terraform.tfstate.1700000000.backup", True),
        (".dev.vars", True),
        (".dev.vars.production", True),
        ("kubeconfig.yaml", True),
        ("id_ed25519_github", True),
        ("etc/ssh_host_rsa_key", True),
        ("app.keytab", True),
        ("android/key.properties", True),
        ("group_vars/.vault_pass", True),
        ("gha-creds-1a2b.json", True),
        ("new_user_credentials.csv", True),
        ("aws_credentials", True),
        ("rootkey.csv", True),
        ("accessKeys.csv", True),
        ("alice_accessKeys.csv", True),
        ("prod-secrets.yaml", True),
        ("secrets-prod.yml", True),
        ("app-secrets.json", True),
        ("creds.json", True),
        ("git-credentials", True),
        ("netrc", True),
        ("id_rsa-backup", True),
        ("server.key.1", True),
        ("key.pem.txt", True),
        ("kaggle.json", True),
        *((name, True) for name in ("npmrc", "dotfiles/pypirc", "ansible/vault_pass", "wireguard/wg0.conf")),
        *(
            (name, True)
            for name in (".config/hub", ".config/doctl/config.yaml", ".config/hcloud/cli.toml", ".snowsql/config")
        ),
        *((name, True) for name in (".fly/config.yml", ".ngrok2/ngrok.yml", ".local/share/keyrings/login.keyring")),
        *((name, False) for name in ("src/npmrc.ts", "hub.yaml", "src/wg0.go", "docs/keyrings.md")),
        (".openai_api_key", True),
        ("env.production", True),
        ("fish_history", True),
        (".sh_history", True),
        ("app-secrets.py", False),
        ("user_credentials.ts", False),
        ("env.py", False),
        ("env.d.ts", False),
        ("app-secrets.example.json", False),
        ("secrets-example.yaml", False),
        ("sealed-secrets.yaml", False),
        ("secrets-manager.yaml", False),
        ("reset-password.json", False),
        ("notes.1.txt", False),
        ("lib.so.1", False),
        ("public-key.txt", False),
        ("docs/app-secrets.md", False),
        ("mysecretsanta.json", False),
        ("auth.json", True),
        ("locales/en/auth.json", False),
        ("locales/en/passwords.json", False),
        ("helm/templates/secret.yaml", False),
        ("helm/templates/.env", True),
        ("helm/secret.yaml", True),
        (".env.d.ts", False),
        ("ssh_host_rsa_key.pub", False),
        ("package.json.bak", False),
        ("notes~", False),
        ("passwd.1", False),
        ("config/credentials.yml.enc", False),
        ("secrets.example.yaml", False),
        ("secrets.schema.json", False),
        ("secrets.test.ts", False),
        (".env.example", False),
        ("id_rsa.pub", False),
        ("secrets.py", False),
        ("pkg/kubeconfig/kubeconfig.go", False),
        ("registry/auth/htpasswd/htpasswd.go", False),
        ("client_secret_check.py", False),
        ("abi/Token.json", False),
        ("artifacts/contracts/Token.sol/Token.json", False),
        ("token.json", True),
        ("gcloud/main.tf", False),
        (".config/gcloud/credentials.db", True),
        (".ssh/tool.py", True),
        (".env.js", True),
        (".docker/contexts/../config.json", True),
        ("css/../auth.json", True),
        ("playwright/tests/../.auth/user.json", True),
        ("docs/../README.md", False),
        ("credentials.ts", False),
        ("secrets/postgres_password", True),
        ("secrets/db_password.txt", True),
        ("bot_token.txt", True),
        ("playwright/.auth/user.json", True),
        (".bundle/config", True),
        ("cookies.txt", True),
        (".curlrc", True),
        ("password_reset.txt", False),
        ("docs/secrets.md", False),
        ("environment.py", False),
        ("keyboard.json", False),
        ("README.md", False),
        # A directory of looks, words or contracts excuses a token, never what is a secret anywhere.
        ("deployments/prod/secrets.yaml", True),
        ("deployments/credentials.json", True),
        ("artifacts/credentials.json", True),
        ("templates/secrets.yml", True),
        ("contracts/.secrets.json", True),
        ("lang/credentials.json", True),
        ("locales/private_key.txt", True),
        ("deployments/mainnet/Token.json", False),
        ("deployments/readme.md", False),
        ("design-tokens.json", False),
        ("src/figma/colorTokens.json", False),
        ("model/added_tokens.json", False),
        ("src/tokens", False),
        ("src/tokens/lexer.json", False),
        # Below a directory of secrets everything counts but code and prose.
        ("secrets/postgres", True),
        ("secrets/prod.yaml", True),
        ("run/Secrets/a/b.bin", True),
        ("secrets/token", True),
        ("config/credentials/production.key", True),
        ("internal/secrets/vault.go", False),
        ("internal/secrets/testdata/../vault_test.go", False),
        ("secrets/README.md", False),
        ("src/credentials/Form.tsx", False),
        ("secrets/.gitkeep", False),
        # One list of words, however they are put together.
        ("db_passwords.txt", True),
        ("auth_token", True),
        ("user_passwords.csv", True),
        ("root_passwd", True),
        ("db-password.txt", True),
        ("admin-password", True),
        ("refresh_token", True),
        ("oauth-token", True),
        ("github-token", True),
        (".gitlab-token", True),
        ("aws-access-key.csv", True),
        ("access_keys.csv", True),
        ("secret_access_key", True),
        ("privateKey.json", True),
        ("secretkey", True),
        ("userPassword.txt", True),
        ("app.secrets.json", True),
        ("postgres.password", True),
        ("passwords2024.xlsx", True),
        ("password (old).txt", True),
        ("gshadow", True),
        ("passwd-", True),
        ("shadow-", True),
        ("wp-config.bak", True),
        ("password.ts", False),
        ("resetPassword.json", False),
        ("locales/en/forgot-password.json", False),
        ("secrets.tf", False),
        ("rotate-secrets.sh", False),
        ("monkey.json", False),
        ("primary_key.sql", False),
        # Copies that browsers, desktops and packagers make.
        ("credentials (1).json", True),
        ("secrets copy.yaml", True),
        ("secrets copy 2.yaml", True),
        ("secrets - Copy (2).yaml", True),
        ("secrets (another copy).yaml", True),
        ("id_rsa (1)", True),
        ("id_rsa copy", True),
        (".netrc (copy)", True),
        ("server.key.20240101", True),
        ("server.key.gz", True),
        ("server.key.bak.1.xz", True),
        ("secrets.yaml.tmp", True),
        ("shadow.rpmsave", True),
        ("shadow.dpkg-old", True),
        (".netrc.rpmsave", True),
        ("secrets.yaml.~1~", True),
        ("credentials.tar.gz", True),
        ("credentials.json.example", False),
        ("server.key.example", False),
        ("secrets.example (1).yaml", False),
        ("server.key.go", False),
        ("server.pub.bak", False),
        ("secrets.py.bak", False),
        ("passwd.1.gz", False),
        ("notes copy.txt", False),
        (".secrets.baseline", False),
    ],
)
def test_file_that_holds_secrets_is_known_by_its_name(path: str, secret: bool) -> None:
    assert secret_name(path) is secret
    expected = "MEDIUM" if secret else "LOW"
    assert GATE.judge("read_file", {"path": path}).verdict.level == expected
    assert GATE.judge("search_files", {"path": path, "pattern": "x"}).verdict.level == expected


def test_write_through_dots_into_a_trusted_directory_asks_with_a_warning() -> None:
    for path in (".github/ISSUE_TEMPLATE/../workflows/x.json", "src/../.vscode/tasks.json"):
        verdict = GATE.judge("write_file", {"path": path, "content": "{}"}).verdict
        assert (verdict.level, verdict.always_asks) == ("HIGH", True)


def test_globs_of_secrets_mean_what_their_names_mean() -> None:
    globs = secret_globs()
    assert {".env*", "*secret*", "id_rsa", "id_rsa.*"} <= {*globs.files}
    # A copy's name says nothing without that of the file; of some names the ending tells.
    for glob in globs.files:
        fitting = (glob.replace("**/", "a/").replace("*", name) for name in ("q", "json", "a.key"))
        assert any(map(secret_name, fitting)), glob
    assert all(secret_name(f"{name.replace('**/', 'a/')}/x") for name in globs.directories)
