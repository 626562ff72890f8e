{# What exists stays, with its state, unless dbt runs with --full-refresh: then it is dropped, with all that
   depends on it, and created again. Nothing is created under another name and then renamed. #}
{% macro slackwater_create(create, existing) %}
  {{ run_hooks(pre_hooks) }}
  {% if existing is not none and not should_full_refresh() %}
    {{ log(this ~ " exists and stays: dbt run --full-refresh creates it again", info=True) }}
    {% call noop_statement('main', 'EXISTS') %}{{ create }}{% endcall %}
  {% else %}
    {% if existing is not none %}
      {% call statement('drop') %}DROP {{ existing }} IF EXISTS {{ this }} CASCADE{% endcall %}
    {% endif %}
    {% call statement('main') %}{{ create }}{% endcall %}
  {% endif %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [this.incorporate(type=none)]}) }}
{% endmacro %}

{# The kind of what exists under this name, as DROP says it; none if there is nothing. #}
{% macro slackwater_existing() %}
  {% set kinds = {'table': 'TABLE', 'view': 'VIEW', 'materialized_view': 'MATERIALIZED VIEW'} %}
  {% set relation = load_cached_relation(this) %}
  {{ return(kinds[relation.type] if relation is not none else none) }}
{% endmacro %}

{% materialization view, adapter='postgres' %}
  {{ return(slackwater_create("CREATE VIEW " ~ this ~ " AS " ~ sql, slackwater_existing())) }}
{% endmaterialization %}

{% materialization materialized_view, adapter='postgres' %}
  {{ return(slackwater_create("CREATE MATERIALIZED VIEW " ~ this ~ " AS " ~ sql, slackwater_existing())) }}
{% endmaterialization %}

{# A job that writes the rows to what the option "with" says: config(materialized='sink', with={…}). #}
{% materialization sink, adapter='postgres' %}
  {% set names = run_query("SHOW SINKS").columns[0].values() %}
  {% set options = [] %}
  {% for key, value in config.require('with').items() %}
    {% do options.append("'" ~ key ~ "' = '" ~ value ~ "'") %}
  {% endfor %}
  {% set create = "CREATE SINK " ~ this ~ " AS " ~ sql ~ " WITH (" ~ options | join(", ") ~ ")" %}
  {{ return(slackwater_create(create, 'SINK' if this.identifier in names else none)) }}
{% endmaterialization %}
