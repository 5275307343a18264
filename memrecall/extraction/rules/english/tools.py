"""Names of tools and systems that are written without a capital."""

TOOLS = (
    r"(?:postgres\w*|mysql|mariadb|sqlite|redis|docker|podman|kubernetes|k8s|nginx|caddy"
    r"|python|rust|golang|java|node|react|vue"
    r"|svelte|django|flask|fastapi|linux|ubuntu|debian|fedora|arch|windows|macos|aws|gcp"
    r"|azure|github|gitlab|npm"
    r"|pnpm|yarn|poetry|pip|uv|conda|vim|neovim|vscode|emacs|kafka|rabbitmq|mongodb"
    r"|terraform|ansible|jenkins"
    r"|typescript|javascript|kotlin|swift|ruby|rails|php|laravel|tabs|spaces|zsh|fish"
    r"|bash|tmux|git|jira|slack|notion"
    r"|obsidian|figma|excel|pytest|ruff|mypy|eslint|prettier|make|cmake|bazel|gradle|maven)"
)
