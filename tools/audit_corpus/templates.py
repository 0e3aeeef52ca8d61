"""Chat templates. The hostile ones never get anywhere: nothing here renders them."""

# name -> template, all of them template_attribute_walk
WALKS = {
    "attribute": "{{ ''.__class__.__mro__ }}",
    "attribute_spaced": "{{ messages . __class__ }}",
    "subscript": "{{ messages['__class__'] }}",
    "attr_filter": "{{ messages | attr('pop') }}",
    "attr_filter_block": "{% filter attr('x') %}y{% endfilter %}",
    "attr_through_map": "{{ messages | map('attr', name) | list }}",
    "map_attribute": "{{ messages | map(attribute='__class__') | list }}",
    "hex_escapes": r"{{ messages['\x5f\x5fclass\x5f\x5f'] }}",
    "octal_escapes": r"{{ messages['\137\137class\137\137'] }}",
    "unicode_escapes": r"{{ messages['\u005f\u005fclass\u005f\u005f'] }}",
    "named_escapes": r"{{ messages['\N{LOW LINE}\N{LOW LINE}class'] }}",
    "tilde": "{{ messages['__cl' ~ 'ass__'] }}",
    "plus": "{{ messages['__glo' + 'bals__'] }}",
    "two_variables": "{% set a = '__cl' %}{% set b = 'ass__' %}{{ messages[a ~ b] }}",
    "pieces_in_another_order": "{% set b = 'ass__' %}{% set a = '__cl' %}{{ messages[a ~ b] }}",
    "printf": "{{ messages['%s%s' % ('__cl', 'ass__')] }}",
    "internals_subscript": "{{ messages['gi_frame'] }}",
    "joined_list": "{{ messages[['_', '_', 'init', '_', '_'] | join] }}",
    "adjacent_strings": "{{ messages['__subcl' 'asses__'] }}",
    "reversed": "{{ messages['__ssalc__'[::-1]] }}",
    "capitals": "{{ messages['__CLASS__' | lower] }}",
    "filler": "{{ messages['__cXlass__' | replace('X', '')] }}",
    "multiplied": "{% set u = '_' * 2 %}{{ messages[u ~ 'class' ~ u] }}",
    "codes": "{% set u = '%c' % 95 %}{{ messages[u ~ u ~ 'class' ~ u ~ u] }}",
    "format_walk": "{{ '{0.__class__}'.format(messages) }}",
    "format_short": "{{ '{0._x}'.format(messages) }}",
    "keyword_name": "{{ messages[dict(__class__=1) | first] }}",
    "lipsum": "{{ lipsum.x }}",
    "cycler": "{{ cycler.x }}",
    "joiner": "{{ joiner['x'] }}",
    "self": "{{ self.x }}",
    "request": "{{ request.application }}",
    "picked_characters": "{% set u = (messages | string | list)[4] %}{{ u }}",
    "frame": "{{ messages.gi_frame.f_globals }}",
    "popen": "{{ x.os.popen('id') }}",
    "eval": "{{ eval('1') }}",
    "payload": "{{ run('import os; os.remove(1)') }}",
    "in_statement": "{% if messages.__len__() %}x{% endif %}",
    "in_default": "{% macro m(x=messages.__class__) %}{% endmacro %}",
    "block_set": "{% set a %}__class__{% endset %}{{ messages[a] }}",
    "macro_text": "{% macro m() %}__globals__{% endmacro %}{{ messages[m()] }}",
    "after_raw": "{% raw %}{# {% endraw %}{{ messages.__class__ }}{# #}",
    "after_raw_no_break_space": "{%\u00a0raw %}{{ ' {% endraw %}{{ messages.__class__ }}{{ '' }}",
    "after_comment_quote": "{# ' #}{{ messages.__class__ }}{# ' #}",
    "string_with_braces": "{{ '}}' ~ messages.__class__ }}",
    "dictionary": "{{ {'a': {'b': messages.__class__}} }}",
    "far_down": "{{ bos_token }}\n" * 2000 + "{{ messages.__class__ }}",
}
IMPORTS = {
    "import": "{% import 'os' as os %}",
    "import_bare": "{% import os %}",
    "include": "{%- include '/etc/passwd' -%}",
    "extends": "{% extends other %}",
    "from_import": "{% from 'x' import y %}",
}

# Ordinary work, with everything that looks like the above and is not.
HARMLESS = {
    "plain": "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] }}{% endfor %}",
    "tool_loop": """{%- set ns = namespace(last=-1, sep='') -%}
{%- for message in messages[::-1] -%}
  {%- set i = (messages | length - 1) - loop.index0 -%}
  {%- if message.role == "user" and message.content is string and not message.content.startswith('<tool_result>') -%}
    {%- set ns.last = i -%}
  {%- endif -%}
{%- endfor -%}
{%- if tools -%}
{{- '# Tools\\n\\nEach is a JSON object.\\n' -}}
{%- for tool in tools -%}{{- "\\n" ~ (tool | tojson(ensure_ascii=False)) -}}{%- endfor -%}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.tool_calls -%}
    {%- for call in message.tool_calls -%}
      {%- set call = call.function if call.function is defined else call -%}
      {{- '<call>{"name": "' + call.name + '", "arguments": ' + (call.arguments | tojson) + '}</call>' -}}
    {%- endfor -%}
  {%- elif '</think>' in message.content -%}
    {{- message.content.split('</think>')[-1].lstrip('\\n') -}}
  {%- else -%}
    {{- message.content | trim -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}""",
    "underscores": """{% set tool_name = message['tool_name'] | replace('_', ' ') %}{{ tool_name }}{{ 'call_' ~ loop_index }}
{% set parts = tool_name.split('__') %}{% if tool_name.startswith('mcp__') %}{{ parts[1] }}{% endif %}{{ '<|__start__|>' }}{{ ids['call_' ~ n] }}{% set _ignored = 1 %}""",
    "joiner_and_cycler": "{% set comma = joiner(', ') %}{% for m in messages %}{{ comma() }}{{ m.content }}{% endfor %}"
                         "{% set row = cycler('a', 'b') %}",
    "own_names": "{% for request in requests %}{{ request.text }}{% endfor %}{% macro show(self_text) %}{{ self_text }}{% endmacro %}",
    "python_in_prose": "Write Python. Begin classes with def __init__(self) and never import os.\n"
                       "{{ 'Call obj.__class__ only when asked, and do not import os.' }}{{ messages[0].content }}",
    "raw_and_comments": "{# formats a chat; see {{ messages }} #}{% raw %}{{ not a tag }}{% endraw %}{{ messages[0].content }}",
    "escapes": r"{{ '\n\n\t\u2581' ~ message.content ~ '\\n' }}{{ '\u4f60\u597d' }}",
    "braces": "{{ {'a': {'b': {}}} | tojson }}{{ '{{' }}{{ \"{%\" }}{{ '{\"x\": 1}' }}",
    "errors": "{% if not messages %}{{ raise_exception('expected messages, found none') }}{% endif %}{{ strftime_now('%d %b %Y') }}",
    "format": "{{ '%s: %d' | format(role, 3) }}{{ '{} {}'.format(a, b) }}{{ '-' * 20 }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
}
